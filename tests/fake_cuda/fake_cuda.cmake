# The stand-in for NVIDIA's libraries, in a folder of its own per variant, under the names that mica looks for. Tests of
# tests/cuda link with one of them, so that they find it there and nowhere else: test_cuda_old* and test_cuda_hollow* are
# programs of their own, cuda_old and cuda_hollow, with the driver of that name; the others are cuda, with the new one.
file(GLOB fake_cuda_sources CONFIGURE_DEPENDS tests/fake_cuda/*.c)
file(GLOB fake_cuda_hollow_sources CONFIGURE_DEPENDS tests/fake_cuda/hollow/*.c)
set(fake_cuda_old_sources ${fake_cuda_sources})
foreach(fake fake_cuda fake_cuda_old fake_cuda_hollow)
    add_library(${fake} SHARED EXCLUDE_FROM_ALL ${${fake}_sources})
    set_target_properties(${fake} PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET default
                                             LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${fake})
    target_link_libraries(${fake} PRIVATE Threads::Threads)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${fake})
    foreach(name libnvrtc.so.13 libnvrtc.so.12 libcublasLt.so.13)
        file(CREATE_LINK libcuda.so.1 ${CMAKE_BINARY_DIR}/${fake}/${name} SYMBOLIC)
    endforeach()
endforeach()
target_compile_definitions(fake_cuda_old PRIVATE FAKE_OLD=1)
function(fake_cuda_serves name program environment) # sets the program that the test is a part of, adds to its environment
    string(REGEX MATCH "_old|_hollow" variant ${name}) # or none: the new one
    set(${program} cuda${variant} PARENT_SCOPE)
    # Sanitizers that open libraries in a program's stead look where they are told, not where it was linked.
    set(${environment} ${${environment}} LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/fake_cuda${variant} PARENT_SCOPE)
endfunction()
