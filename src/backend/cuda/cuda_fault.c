/*
 * cuda_fault.c - fault words: pinned host memory that kernels write and the host reads when a submission is done.
 *
 * A word costs nothing while nothing goes wrong: no copy, no reset. Whoever finds one set takes its value and clears it.
 */
#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"

static mica_status add_page(mica__device *device)
{
    const size_t bytes = MICA__CUDA_FAULTS * sizeof(uint32_t);
    uint64_t address = 0;
    mica__cuda_fault_page *page = mica__calloc(1, sizeof *page);
    if (page == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory for fault words");
    int result =
        device->driver.host_alloc(&page->host, bytes, MICA__CUDA_HOST_PORTABLE | MICA__CUDA_HOST_MAPPED);
    if (result != 0) {
        mica__free(page);
        return mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "allocating fault words");
    }
    result = device->driver.host_device(&address, page->host, 0);
    if (result != 0) {
        device->driver.host_free(page->host);
        mica__free(page);
        return mica__cuda_check(device, result, MICA_ERR_UNSUPPORTED, "mapping fault words");
    }
    for (uint32_t i = 0; i < MICA__CUDA_FAULTS; i++) {
        mica__cuda_fault *fault = &page->fault[i];
        fault->host = (_Atomic uint32_t *)page->host + i;
        fault->device = address + i * sizeof(uint32_t);
        atomic_init(fault->host, 0);
        fault->next = i + 1 < MICA__CUDA_FAULTS ? fault + 1 : NULL;
    }
    pthread_mutex_lock(&device->lock);
    page->fault[MICA__CUDA_FAULTS - 1].next = device->free_fault;
    device->free_fault = &page->fault[0];
    page->next = device->fault_pages;
    device->fault_pages = page;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

mica_status mica__cuda_fault_take(mica__device *device, mica__cuda_fault **out)
{
    *out = NULL;
    for (;;) {
        pthread_mutex_lock(&device->lock);
        mica__cuda_fault *fault = device->free_fault;
        if (fault != NULL)
            device->free_fault = fault->next;
        pthread_mutex_unlock(&device->lock);
        if (fault != NULL) {
            *out = fault;
            return MICA_OK;
        }
        const mica_status status = add_page(device);
        if (status != MICA_OK)
            return status;
    }
}

void mica__cuda_fault_give(mica__device *device, mica__cuda_fault *fault)
{
    if (fault == NULL || device->generation != mica__fork_generation()) /* a child may not have its page */
        return;
    atomic_store(fault->host, 0);
    pthread_mutex_lock(&device->lock);
    fault->next = device->free_fault;
    device->free_fault = fault;
    pthread_mutex_unlock(&device->lock);
}

void mica__cuda_faults_close(mica__device *device, bool driver)
{
    while (device->fault_pages != NULL) {
        mica__cuda_fault_page *page = device->fault_pages;
        device->fault_pages = page->next;
        if (driver)
            device->driver.host_free(page->host);
        mica__free(page);
    }
    device->free_fault = NULL;
}
