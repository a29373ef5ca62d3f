/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hash.c - hashes, and random bytes.
 */
#include "test.h"

#include "base/hash.h"

static void hashes(void **state)
{
    (void)state;
    unsigned char a[32], b[32], zero[32] = {0};
    char text[65];
    rd_hash(a, 32, "label", "data", 4);
    rd_hex(text, a, 32);
    assert_string_equal(text, "3371ae06467ad50247c0f2458bb32590503b606f02d386fa58e6083f8b7d86a0");
    rd_hash(b, 32, "labe", "ldata", 5); /* the label's end counts */
    assert_memory_not_equal(a, b, 32);
    rd_hash(b, 16, "label", "data", 4); /* another length is another hash, not a piece */
    assert_memory_not_equal(a, b, 16);
    rd_random(a, 32);
    rd_random(b, 32);
    assert_memory_not_equal(a, b, 32);
    assert_memory_not_equal(a, zero, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
