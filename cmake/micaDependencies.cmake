# What libmica-model stands on besides libmica, as the targets mica::pcre2 and mica::utf8proc where they are found. The build of
# mica and the installed package look alike, so that no path of the machine that built it goes into the package.
function(mica_find_dependencies static) # their archives, or whatever the linker would take
    set(names pcre2 utf8proc)
    set(libraries pcre2-8 utf8proc)
    set(kind LIBRARY)
    if(static)
        set(kind ARCHIVE)
        set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
    endif()
    foreach(name library IN ZIP_LISTS names libraries)
        find_path(MICA_${name}_INCLUDE ${name}.h)
        find_library(MICA_${name}_${kind} ${library})
        if(NOT TARGET mica::${name} AND MICA_${name}_INCLUDE AND MICA_${name}_${kind})
            add_library(mica::${name} UNKNOWN IMPORTED GLOBAL)
            set_target_properties(mica::${name} PROPERTIES IMPORTED_LOCATION "${MICA_${name}_${kind}}"
                                                           INTERFACE_INCLUDE_DIRECTORIES "${MICA_${name}_INCLUDE}")
        endif()
    endforeach()
endfunction()
