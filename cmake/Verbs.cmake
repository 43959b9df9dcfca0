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

# Its neighbours, which programs link that can use a vendor's cards.
foreach(driver IN ITEMS mlx5 efa)
    verbena_glob(driver_sources src/${driver}/*.c)
    set(driver_map ${PROJECT_SOURCE_DIR}/src/${driver}/lib${driver}.map)
    add_library(verbena_${driver} SHARED ${driver_sources} ${config_header})
    target_include_directories(verbena_${driver} PRIVATE ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_SOURCE_DIR}/src ${VERBENA_MLX5DV_DIR})
    target_link_libraries(verbena_${driver} PRIVATE verbena_verbs)
    target_link_options(verbena_${driver} PRIVATE -Wl,--version-script=${driver_map})
    set_target_properties(verbena_${driver} PROPERTIES OUTPUT_NAME ${driver} SOVERSION 1
        LINK_DEPENDS ${driver_map} C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${verbs_dir}
        SKIP_BUILD_RPATH ON)
endforeach()

# The drop-in librdmacm, over the communication manager in our libibverbs, and rsockets over its calls.
verbena_glob(rdmacm_sources src/rdmacm/*.c)
verbena_glob(rsocket_sources src/rsocket/*.c)
set(rdmacm_map ${PROJECT_SOURCE_DIR}/src/rdmacm/librdmacm.map)
add_library(verbena_rdmacm SHARED ${rdmacm_sources} ${rsocket_sources} ${config_header})
target_link_libraries(verbena_rdmacm PRIVATE verbena_verbs libverbena)
target_link_options(verbena_rdmacm PRIVATE -Wl,--version-script=${rdmacm_map} -Wl,-z,nodelete
    -Wl,--exclude-libs,ALL)
set_target_properties(verbena_rdmacm PROPERTIES OUTPUT_NAME rdmacm SOVERSION 1
    LINK_DEPENDS ${rdmacm_map} C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${verbs_dir}
    SKIP_BUILD_RPATH ON)
