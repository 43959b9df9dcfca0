# SPDX-License-Identifier: Apache-2.0
# Puts presets/*.cost into the library: writes a C file with their text, and sets `presets_source`.
file(GLOB preset_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/presets/*.cost)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${preset_files})
set(presets_source ${PROJECT_BINARY_DIR}/generated/presets.c)
set(texts "")
set(rows "")
foreach(file IN LISTS preset_files)
    get_filename_component(name ${file} NAME_WE)
    string(MAKE_C_IDENTIFIER ${name} identifier)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(APPEND texts "static const char ${identifier}[] = {${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", ${identifier}},\n")
endforeach()
file(CONFIGURE OUTPUT ${presets_source} @ONLY CONTENT
"// SPDX-License-Identifier: Apache-2.0
// The presets of the cost model; written by CMake from presets/*.cost.
#include \"cost/preset.h\"

@texts@
const struct vb_preset_file vb_preset_files[] = {
@rows@    {NULL, NULL},
};
")
install(FILES ${preset_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/verbena/presets)
