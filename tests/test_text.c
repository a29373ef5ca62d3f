/* SPDX-License-Identifier: Apache-2.0
 *
 * test_text.c - texts that grow in room that does not.
 */
#include "test.h"

#include "base/text.h"

static void pieces_come_one_after_the_other(void **state)
{
    (void)state;
    char room[16];
    rd_text text = {room, sizeof room};
    rd_text_add(&text, "rank %d", 7);
    rd_text_add(&text, "%s", "");
    rd_text_add(&text, ", %s", "late");
    assert_string_equal(room, "rank 7, late");
    assert_ptr_equal(text.at, room + strlen(room));
    assert_int_equal(text.left, sizeof room - strlen(room));
}

/* At each length: what fits stands, and no byte behind the room is touched. */
static void the_end_cuts(void **state)
{
    (void)state;
    const char whole[] = "abcdefghij";
    for (size_t bytes = 1; bytes < sizeof whole + 2; bytes++) {
        char room[16];
        rd_text text = {room, bytes};
        memset(room, '#', sizeof room);
        rd_text_add(&text, "%.4s", whole);
        rd_text_add(&text, "%s", whole + 4);
        rd_text_add(&text, "%s", "");
        size_t fits = bytes - 1 < sizeof whole - 1 ? bytes - 1 : sizeof whole - 1;
        assert_int_equal(strlen(room), fits);
        assert_memory_equal(room, whole, fits);
        for (size_t i = bytes; i < sizeof room; i++) assert_int_equal(room[i], '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_come_one_after_the_other),
        cmocka_unit_test(the_end_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
