/* SPDX-License-Identifier: Apache-2.0 */
#include "core/report.h"

#include "boot/wire.h"

#include <time.h>

enum { VERSION = 1 };

static uint64_t age(uint64_t real_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return real_ns && real_ns < now_ns ? now_ns - real_ns : 0;
}

/* 54 bytes. */
static void pack_call(rd_writer *w, bool there, const rondo_record_call *call)
{
    const unsigned char kinds[] = {there, call->kind, call->collective, call->dtype, call->op, call->ended_ns != 0};
    rd_write_bytes(w, kinds, sizeof kinds);
    rd_write_u64(w, call->number);
    rd_write_u64(w, call->count);
    rd_write_u32(w, (uint32_t)call->root);
    rd_write_u32(w, (uint32_t)call->result);
    rd_write_u32(w, call->together);
    rd_write_u64(w, age(call->begun_ns));
    rd_write_u64(w, call->ended_ns ? age(call->ended_ns) : 0);
}

void rd_report_pack(const rondo_comm *comm, unsigned char bytes[RD_REPORT_BYTES])
{
    rd_writer w = {.at = bytes, .left = RD_REPORT_BYTES};
    rondo_record_call call = {0}, message = {0};
    bool called = rd_record_latest(comm->recorder, true, &call);
    bool passes = rd_record_latest(comm->recorder, false, &message);
    rd_write_u32(&w, VERSION);
    pack_call(&w, called, called ? &call : &(rondo_record_call){0});
    pack_call(&w, passes, passes ? &message : &(rondo_record_call){0});
}

static bool unpack_call(rd_reader *r, rondo_record_call *call)
{
    unsigned char kinds[6] = {0};
    rd_read_bytes(r, kinds, sizeof kinds);
    *call = (rondo_record_call){.kind = kinds[1], .collective = kinds[2], .dtype = kinds[3], .op = kinds[4]};
    call->number = rd_read_u64(r);
    call->count = rd_read_u64(r);
    call->root = (int32_t)rd_read_u32(r);
    call->result = (int32_t)rd_read_u32(r);
    call->together = rd_read_u32(r);
    call->begun_ns = rd_read_u64(r);
    call->ended_ns = rd_read_u64(r);
    if (kinds[5] && !call->ended_ns) call->ended_ns = 1;
    return kinds[0];
}

bool rd_report_unpack(const unsigned char bytes[RD_REPORT_BYTES], rd_report *report)
{
    rd_reader r = {.at = bytes, .left = RD_REPORT_BYTES};
    if (rd_read_u32(&r) != VERSION) return false;
    report->called = unpack_call(&r, &report->call);
    report->passes = unpack_call(&r, &report->message);
    return !r.bad;
}
