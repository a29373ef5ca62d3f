/* SPDX-License-Identifier: Apache-2.0
 *
 * test.h - CMocka with what it wants included before it.
 */
#ifndef RONDO_TEST_H
#define RONDO_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
