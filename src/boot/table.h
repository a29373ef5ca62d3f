/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h - what client (table.c) and server (rendezvous.c) of the rendezvous table say to one another. Every request
 * has one answer, in order.
 */
#ifndef RD_BOOT_TABLE_H
#define RD_BOOT_TABLE_H

/*        request payload                                            answer on success */
enum rd_table_kind {
    RD_TABLE_PUT = 1,  /* u16 key bytes, key, value                           OK     -                       */
    RD_TABLE_GET,      /* key                                                 VALUE  value                   */
    RD_TABLE_GATHER,   /* u64 ms left, u16 name bytes, name, value            VALUE  world values, by rank   */
    RD_TABLE_LEAVE,    /* -                                                   none: the client goes in order */
    RD_TABLE_OK,
    RD_TABLE_VALUE,
    RD_TABLE_FAILED    /* u32 result, text */
};

enum {
    RD_TABLE_KEY = 64,                        /* longest key or name */
    RD_TABLE_VALUE_BYTES = 65536,             /* largest value */
    RD_TABLE_REQUEST = RD_TABLE_VALUE_BYTES + 10 + RD_TABLE_KEY,
    RD_TABLE_TEXT = 1024,                     /* longest failure text */
    RD_TABLE_GATHER_BYTES = 1 << 30           /* most that a gather answers */
};

#endif
