# SPDX-License-Identifier: Apache-2.0
# The drop-in libibverbs, in a directory of its own: only `verbena run` leads programs to it.

verbena_glob(verbs_sources src/verbs/*.c)
set(verbs_dir ${PROJECT_BINARY_DIR}/lib/verbena)
set(verbs_map ${PROJECT_SOURCE_DIR}/src/verbs/libibverbs.map)
# A program that closes it may still be served by its helper thread: it is never unloaded.
add_library(verbena_verbs SHARED ${verbs_sources} ${config_header})
target_link_libraries(verbena_verbs PRIVATE libverbena)
target_link_options(verbena_verbs PRIVATE -Wl,--version-script=${verbs_map} -Wl,-z,nodelete
    -Wl,--exclude-libs,ALL)
set_target_properties(verbena_verbs PROPERTIES OUTPUT_NAME ibverbs SOVERSION 1
    LINK_DEPENDS ${verbs_map} C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${verbs_dir})
