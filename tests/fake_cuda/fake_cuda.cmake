# The stand-in for NVIDIA's libraries, in a folder of its own per variant, under the names that mica looks for. Tests of
# tests/cuda link with one of them, so that they find it there and nowhere else: test_cuda_old* and test_cuda_hollow* with
# the driver of that name, the others with the new one.
file(GLOB fake_new_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/fake_cuda/*.c)
file(GLOB fake_hollow_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/fake_cuda/hollow/*.c)
set(fake_old_sources ${fake_new_sources})
foreach(variant new old hollow)
    set(folder ${CMAKE_BINARY_DIR}/fake_cuda_${variant})
    add_library(fake_cuda_${variant} SHARED EXCLUDE_FROM_ALL ${fake_${variant}_sources})
    set_target_properties(fake_cuda_${variant} PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET default
                                                          LIBRARY_OUTPUT_DIRECTORY ${folder})
    target_link_libraries(fake_cuda_${variant} PRIVATE Threads::Threads)
    foreach(name libnvrtc.so.13 libnvrtc.so.12 libcublasLt.so.13)
        add_custom_command(TARGET fake_cuda_${variant} POST_BUILD
                           COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${folder}/${name})
    endforeach()
endforeach()
target_compile_definitions(fake_cuda_old PRIVATE FAKE_OLD=1)
function(fake_cuda_serves name)
    set(variant new)
    if(name MATCHES "old|hollow")
        set(variant ${CMAKE_MATCH_0})
    endif()
    # An executable keeps no library that it calls nothing of, unless it is told to.
    target_link_options(${name} PRIVATE LINKER:--no-as-needed)
    target_link_libraries(${name} PRIVATE fake_cuda_${variant})
    # Sanitizers that open libraries in a program's stead look where they are told, not where it was linked.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/fake_cuda_${variant})
endfunction()
