# SPDX-License-Identifier: Apache-2.0
# Finding sources by directory, and keeping a list of all that the build knows of: the tidy test
# calls every other source dead.

# Sets OUT to the files that match the patterns, and remembers them.
function(verbena_glob out)
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/)
    file(GLOB found CONFIGURE_DEPENDS ${ARGN})
    set_property(GLOBAL APPEND PROPERTY VERBENA_SOURCES ${found})
    set(${out} ${found} PARENT_SCOPE)
endfunction()

# Builds each source into a program of its own in DIR of the build tree.
function(verbena_programs dir sources)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        target_link_libraries(${name} PRIVATE ${ARGN} verbena_sim libverbena)
        set_target_properties(${name} PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir})
    endforeach()
endfunction()

function(verbena_write_sources path)
    get_property(sources GLOBAL PROPERTY VERBENA_SOURCES)
    list(REMOVE_DUPLICATES sources)
    list(TRANSFORM sources REPLACE "^${PROJECT_SOURCE_DIR}/" "")
    list(JOIN sources "\n" text)
    file(GENERATE OUTPUT ${path} CONTENT "${text}\n")
endfunction()
