/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>

int rd_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) pthread_setname_np(*thread, name);
    return error;
}
