/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h - for tests of training: the same test with tensors in memory of the host, and of GPUs.
 */
#ifndef RONDO_TEST_TENSORS_H
#define RONDO_TEST_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

/* First in main: runs this program twice, on the host and over the simulated driver (on_cudasim.h), ends the first
 * process, and returns in those two. */
void tensors_everywhere(char **argv);
bool tensors_on_gpu(void);

/* A setup_fn of ranks: each with a GPU of its own as far as there are some, or with none. */
void tensors_set_up(int rank, void *context);

/* Memory of that kind, zeroed, with contents `from` unless it is NULL: until tensors_forget, which gives back all. */
void *tensor_new(const void *from, size_t bytes);
void tensors_forget(void);
/* Between that memory, or any other that a rank uses, and the test's own. */
void tensor_put(void *to, const void *from, size_t bytes);
void tensor_get(void *to, const void *from, size_t bytes);

#endif
