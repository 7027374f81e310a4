# What libmica-model stands on besides libmica, as the targets mica::pcre2 and mica::utf8proc. The build of mica and the
# installed package look for them alike, so that no path of the machine that built it goes into the package.
function(mica_find_dependency name header library static)
    if(TARGET mica::${name})
        return()
    endif()
    set(found MICA_${name}_LIBRARY)
    if(static)
        set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
        set(found MICA_${name}_ARCHIVE)
    endif()
    find_path(MICA_${name}_INCLUDE ${header})
    find_library(${found} ${library})
    mark_as_advanced(MICA_${name}_INCLUDE ${found})
    if(MICA_${name}_INCLUDE AND ${found})
        add_library(mica::${name} UNKNOWN IMPORTED GLOBAL)
        set_target_properties(mica::${name} PROPERTIES IMPORTED_LOCATION "${${found}}"
                                                       INTERFACE_INCLUDE_DIRECTORIES "${MICA_${name}_INCLUDE}")
    endif()
endfunction()

function(mica_find_dependencies static) # the archives of them, or whatever the linker would take
    mica_find_dependency(pcre2 pcre2.h pcre2-8 ${static})
    mica_find_dependency(utf8proc utf8proc.h utf8proc ${static})
endfunction()
