/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h - threads of the library's own.
 */
#ifndef RD_BASE_THREAD_H
#define RD_BASE_THREAD_H

#include <pthread.h>

/* Starts one that takes no signals: those of the application are for the application's threads. name: up
 * to 15 letters, for debuggers. Returns an errno. */
int rd_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

#endif
