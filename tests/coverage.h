/* SPDX-License-Identifier: Apache-2.0
 *
 * coverage.h - included before every file of a coverage build: a child that leaves by _exit() leaves its counts, too.
 */
#include <stdlib.h>
#include <unistd.h>

void __gcov_dump(void);
#define _exit(status) (__gcov_dump(), _exit(status))
