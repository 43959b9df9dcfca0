# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where: command, libraries, public headers, pkg-config file, man page.
include(GNUInstallDirs)

if(TARGET verbena)
    install(TARGETS verbena RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS verbena_verbs verbena_mlx5 verbena_efa verbena_rdmacm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/verbena)
install(TARGETS libverbena ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/verbena
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

configure_file(cmake/verbena.pc.in verbena.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/verbena.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(GLOB man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
foreach(page IN LISTS man_pages)
    get_filename_component(name ${page} NAME)
    set(packed ${PROJECT_BINARY_DIR}/man/${name}.gz)
    add_custom_command(OUTPUT ${packed} DEPENDS ${page}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
        COMMAND gzip -9nc ${page} > ${packed})
    list(APPEND packed_pages ${packed})
endforeach()
add_custom_target(man ALL DEPENDS ${packed_pages})
install(FILES ${packed_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

install(FILES ${PROJECT_SOURCE_DIR}/units/verbena-nic.service DESTINATION lib/systemd/system)
install(FILES ${PROJECT_SOURCE_DIR}/units/user/verbena-nic.service DESTINATION lib/systemd/user)
