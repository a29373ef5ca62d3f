/* SPDX-License-Identifier: Apache-2.0
 *
 * sanitize.h - what the sanitizers are told of fibers, streams and memory. The driver itself is built without them.
 *
 * The thread sanitizer would see this driver's locks as order between all that use them, and so miss that a program
 * forgot an event between two streams. So its locks are hidden, and the order that CUDA promises is told in so many
 * words: a call before what it puts in a stream, works of a stream one after the other, a record before who waits for
 * the event, all of a stream before who synchronises with it.
 *
 * To the address sanitizer all memory of devices is poison: code for the host that touches it is found. Kernels, which
 * may, are compiled to ask the driver before every access (device.h, RD_SIM_CHECK), which also knows who may touch
 * what.
 */
#ifndef RONDO_CUDASIM_SANITIZE_H
#define RONDO_CUDASIM_SANITIZE_H

#ifdef SIM_SAN_thread
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
enum { SIM_TSAN_NO_SYNC = 1 };
#define SIM_ACQUIRE(address) __tsan_acquire((void *)(uintptr_t)(address))
#define SIM_RELEASE(address) __tsan_release((void *)(uintptr_t)(address))
#define SIM_HIDE_BEGIN()     AnnotateIgnoreSyncBegin(__FILE__, __LINE__)
#define SIM_HIDE_END()       AnnotateIgnoreSyncEnd(__FILE__, __LINE__)
#else
#define SIM_ACQUIRE(address) ((void)(address))
#define SIM_RELEASE(address) ((void)(address))
#define SIM_HIDE_BEGIN()     ((void)0)
#define SIM_HIDE_END()       ((void)0)
#endif

#ifdef SIM_SAN_address
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SIM_UNPOISON(address, bytes) __asan_unpoison_memory_region((const void *)(address), (bytes))
#define SIM_POISON(address, bytes)   __asan_poison_memory_region((const void *)(address), (bytes))
#else
#define SIM_UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#define SIM_POISON(address, bytes)   ((void)(address), (void)(bytes))
#endif

#endif
