# SPDX-License-Identifier: Apache-2.0
# librspreload, which turns the socket calls of programs into rsocket calls. rsockets themselves are
# a part of librdmacm.
if(TARGET verbena_rdmacm)
    verbena_glob(rspreload_sources src/rspreload/*.c)
    add_library(verbena_rspreload SHARED ${rspreload_sources})
    target_include_directories(verbena_rspreload PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(verbena_rspreload PRIVATE -fno-builtin)
    target_link_libraries(verbena_rspreload PRIVATE verbena_rdmacm Threads::Threads
        ${CMAKE_DL_LIBS})
    set_target_properties(verbena_rspreload PROPERTIES OUTPUT_NAME rspreload
        C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${verbs_dir} SKIP_BUILD_RPATH ON)
    install(TARGETS verbena_rspreload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/verbena)
endif()
