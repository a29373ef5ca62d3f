/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.c - slices by RDMA writes, from the caller's memory to the caller's memory.
 *
 *   sender                                        receiver
 *   short slice: header and payload ------------> slot n % CREDITS, copied to where recv wants it
 *   long slice:  mail n % MAILS <---------------- recv: "slice n goes there, so long, with this signature"
 *                payload -----------------------> there
 *
 * Every write carries an immediate, which completes a receive at the other end: what it is, and the number of its slice.
 * So the number alone restores the order of what came over several queue pairs. As many receives are posted as
 * immediates can come, so no write ever finds none. The sender goes no further than CREDITS slices beyond what it knows
 * the receiver to have counted; the receiver says so once in CREDITS / 2 slices, and every mail says it, too.
 *
 * A long slice whose mail says something else travels as its header alone: the receiver sees the mismatch and nothing
 * is written where it does not belong. Where the receiver expects a short slice and sends no mail, a sender that has
 * waited in vain gives notice: again the header alone.
 *
 * Short slices are done when they have been copied: to wait for the acknowledgement would add a way back to every call.
 * close waits for it instead. The price: of a process that exits without closing, the network may lose the last slice.
 */
#include "base/clock.h"
#include "base/status.h"
#include "transport/verbs_link.h"

#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* What an immediate says, in its two upper bits; below them a number of slices. */
enum immediate { IN_SLOT, AT_TARGET, NOTICE, GREETING, TARGET = 0, CREDIT = 1 };
enum { NUMBER_BITS = 30, NUMBER_MASK = (1 << NUMBER_BITS) - 1 };
enum { IDLE_LOOKS = 256 }; /* looks in vain before this end looks at the socket, and gives notice */
#define LAST_WORDS_NS 2000000 /* between the socket's end and the link's */
#define FLUSH_NS 10000000000 /* close's longest wait; the device gives up long before */

static rd_verbs_frame *frame_of(rd_verbs_end *end, uint64_t slice) { return &end->frames[slice % RD_VERBS_SLICES]; }

static unsigned char *slot_of(const rd_verbs_end *end, uint64_t slice)
{
    return end->slots + slice % RD_VERBS_CREDITS * end->stride;
}

static rd_verbs_mail *mail_of(const rd_verbs_end *end, uint64_t slice)
{
    return (rd_verbs_mail *)(void *)(end->memory + slice % RD_VERBS_MAILS * RD_VERBS_MAIL);
}

static uint32_t immediate(enum immediate what, uint64_t number)
{
    return (uint32_t)what << NUMBER_BITS | (uint32_t)(number & NUMBER_MASK);
}

/* The number nearest to `near` that has these lower bits. */
static uint64_t number_near(uint64_t near, uint32_t bits)
{
    int32_t away = (int32_t)((bits - (uint32_t)near) << (32 - NUMBER_BITS)) >> (32 - NUMBER_BITS);
    return near + (uint64_t)(int64_t)away;
}

/* ---- What comes ---- */

static void stray(rd_verbs_end *end, uint32_t bits)
{
    char what[64];
    snprintf(what, sizeof what, "it brought %#x out of order", bits);
    rd_verbs_broken(end, what, "another program, or a bug");
}

/* At the receiver: a slice, or notice of one. */
static void slice_came(rd_verbs_end *end, rd_verbs_rail *rail, uint32_t bits)
{
    enum immediate what = (enum immediate)(bits >> NUMBER_BITS);
    rail->greeted = true;
    if (what == GREETING) return;
    uint64_t slice = number_near(end->counted, bits);
    bool was_told = slice < end->handed && frame_of(end, slice)->bytes > end->eager;
    if (slice < end->counted || slice >= end->counted + RD_VERBS_CREDITS || (what == AT_TARGET && !was_told)) {
        stray(end, bits);
    } else if (what == NOTICE) {
        end->noticed = slice + 1;
    } else {
        end->come[slice % RD_VERBS_CREDITS] = slice + 1;
        end->direct[slice % RD_VERBS_CREDITS] = what == AT_TARGET;
        end->gpu.flushed = false;
    }
}

/* At the sender: a target for a slice, or how many the receiver has counted. Targets lie no further ahead than MAILS, so
 * each tells of what was counted before, too. */
static void mail_came(rd_verbs_end *end, uint32_t bits)
{
    uint64_t number = number_near(end->handed, bits), taken = number;
    if (bits >> NUMBER_BITS == TARGET) {
        if (number >= end->handed + RD_VERBS_MAILS) return stray(end, bits);
        if (number >= end->handed) end->mailed[number % RD_VERBS_MAILS] = number + 1;
        taken = number + 1 > RD_VERBS_MAILS ? number + 1 - RD_VERBS_MAILS : 0;
    }
    if (taken > end->handed) return stray(end, bits);
    if (taken > end->taken) end->taken = taken;
}

static void absorb(rd_verbs_end *end, rd_verbs_rail *rail)
{
    struct ibv_wc wcs[16];
    int n;
    do {
        n = ibv_poll_cq(rail->cq, 16, wcs);
        if (n < 0) return rd_verbs_broken(end, "the completion queue cannot be read", "see the device's manual");
        for (int i = 0; i < n; i++) {
            const struct ibv_wc *wc = &wcs[i];
            if (wc->status != IBV_WC_SUCCESS) {
                rd_verbs_completed_badly(end, rail, wc);
            } else if (!(wc->opcode & IBV_WC_RECV)) {
                rail->done = wc->wr_id;
            } else {
                uint32_t bits = be32toh(wc->imm_data);
                if (!rd_rail_expect(rail)) rd_verbs_broken(end, "a receive was refused", strerror(errno));
                if (end->side == RD_RECEIVER) slice_came(end, rail, bits);
                else mail_came(end, bits);
            }
        }
    } while (n == 16);
}

static void absorb_all(rd_verbs_end *end)
{
    for (int i = 0; i < end->rail_count; i++) absorb(end, &end->rails[i]);
}

/* ---- What goes ---- */

/* False: the write was refused, and the link has ended. */
static bool post(rd_verbs_end *end, rd_verbs_rail *rail, const rd_rail_write *write)
{
    if (rd_rail_post(rail, write)) return true;
    rd_verbs_broken(end, "a write was refused", strerror(errno));
    return false;
}

static struct ibv_sge piece(const rd_verbs_rail *rail, const void *at, size_t bytes)
{
    return (struct ibv_sge){(uintptr_t)at, (uint32_t)bytes, rail->mr->lkey};
}

/* A short slice that no CPU can copy: the device gathers it. */
static bool send_from_gpu(rd_verbs_end *end, uint64_t slice, const rd_verbs_header *header)
{
    rd_verbs_rail *rail = rd_verbs_rail_of(end, slice);
    rd_verbs_frame *frame = frame_of(end, slice);
    unsigned char *slot = slot_of(end, slice);
    memcpy(slot, header, sizeof *header);
    rd_rail_write write = {.parts = {piece(rail, slot, sizeof *header), piece(rail, frame->memory, frame->bytes)},
                           .count = 2,
                           .told = true,
                           .to = end->peer + slice % RD_VERBS_CREDITS * end->stride,
                           .immediate = immediate(IN_SLOT, slice)};
    write.parts[1].lkey = end->gpu.mr[slice % (uint64_t)end->rail_count]->lkey;
    if (!post(end, rail, &write)) return false;
    frame->at = frame->memory;
    frame->written = rail->posted;
    return true;
}

/* A header, and the payload behind it, into the receiver's slot. */
static bool send_to_slot(rd_verbs_end *end, uint64_t slice, enum immediate what, size_t payload)
{
    rd_verbs_rail *rail = rd_verbs_rail_of(end, slice);
    const rd_verbs_frame *frame = frame_of(end, slice);
    rd_verbs_header header = {htole64(frame->signature), htole32((uint32_t)frame->bytes), htole32((uint32_t)slice)};
    rd_rail_write write = {.count = 1, .to = end->peer + slice % RD_VERBS_CREDITS * end->stride,
                           .immediate = immediate(what, slice)};
    if (payload && rd_verbs_is_gpu(end, frame->memory)) return send_from_gpu(end, slice, &header);
    if (sizeof header + payload <= rail->inline_bytes) {
        write.copied = true;
        write.count = 1 + (payload > 0);
        write.parts[0] = piece(rail, &header, sizeof header);
        write.parts[1] = piece(rail, frame->memory, payload);
    } else {
        unsigned char *slot = slot_of(end, slice);
        memcpy(slot, &header, sizeof header);
        if (payload) memcpy(slot + sizeof header, frame->memory, payload);
        write.parts[0] = piece(rail, slot, sizeof header + payload);
    }
    return post(end, rail, &write);
}

static bool send_to_target(rd_verbs_end *end, uint64_t slice, const rd_verbs_mail *mail)
{
    rd_verbs_rail *rail = rd_verbs_rail_of(end, slice);
    rd_verbs_frame *frame = frame_of(end, slice);
    rd_rail_write write = {.count = 1, .told = true, .to = le64toh(mail->address), .immediate = immediate(AT_TARGET, slice)};
    rd_verbs_reach(end, frame, slice);
    write.parts[0] = (struct ibv_sge){(uintptr_t)frame->at, (uint32_t)frame->bytes, frame->local};
    if (frame->at != frame->memory) memcpy(frame->at, frame->memory, frame->bytes);
    uint32_t own = rail->key;
    rail->key = le32toh(mail->key);
    bool sent = post(end, rail, &write);
    rail->key = own;
    if (sent) frame->written = rail->posted;
    return sent;
}

/* The next slice, if it may go. */
static bool send_next(rd_verbs_end *end)
{
    uint64_t slice = end->handed;
    rd_verbs_frame *frame = frame_of(end, slice);
    if (slice - end->taken >= RD_VERBS_CREDITS || !rd_rail_has_room(rd_verbs_rail_of(end, slice))) return false;
    if (frame->bytes <= end->eager) return send_to_slot(end, slice, IN_SLOT, frame->bytes);
    if (end->mailed[slice % RD_VERBS_MAILS] != slice + 1) return false;
    const rd_verbs_mail *mail = mail_of(end, slice);
    if (le64toh(mail->signature) != frame->signature || le32toh(mail->bytes) != frame->bytes)
        return send_to_slot(end, slice, IN_SLOT, 0);
    return send_to_target(end, slice, mail);
}

/* The next receive: where its slice shall go, if it is a long one. */
static bool tell_target(rd_verbs_end *end)
{
    uint64_t slice = end->handed;
    rd_verbs_rail *rail = rd_verbs_rail_of(end, slice);
    rd_verbs_frame *frame = frame_of(end, slice);
    if (frame->bytes <= end->eager) return true;
    if (!rail->greeted || !rd_rail_has_room(rail)) return false;
    rd_verbs_mail *mail = mail_of(end, slice);
    rd_verbs_reach(end, frame, slice);
    *mail = (rd_verbs_mail){htole64((uintptr_t)frame->at), htole64(frame->signature), htole32(frame->remote),
                            htole32((uint32_t)frame->bytes)};
    rd_rail_write write = {.parts = {piece(rail, mail, sizeof *mail)}, .count = 1,
                           .copied = sizeof *mail <= rail->inline_bytes,
                           .to = end->peer + slice % RD_VERBS_MAILS * RD_VERBS_MAIL,
                           .immediate = immediate(TARGET, slice)};
    if (!post(end, rail, &write)) return false;
    uint64_t implied = slice + 1 > RD_VERBS_MAILS ? slice + 1 - RD_VERBS_MAILS : 0;
    if (implied > end->taken) end->taken = implied;
    return true;
}

static void tell_credit(rd_verbs_end *end)
{
    rd_verbs_rail *rail = rd_verbs_rail_of(end, end->counted);
    if (end->counted - end->taken < RD_VERBS_CREDITS / 2 || !rail->greeted || !rd_rail_has_room(rail)) return;
    rd_rail_write write = {.to = end->peer, .immediate = immediate(CREDIT, end->counted)};
    if (post(end, rail, &write)) end->taken = end->counted;
}

/* A sender that waits for a target which perhaps never comes. */
static void give_notice(rd_verbs_end *end)
{
    uint64_t slice = end->handed;
    if (end->side != RD_SENDER || slice == end->posted || end->noticed == slice + 1) return;
    if (frame_of(end, slice)->bytes <= end->eager || slice - end->taken >= RD_VERBS_CREDITS) return;
    if (end->mailed[slice % RD_VERBS_MAILS] == slice + 1 || !rd_rail_has_room(rd_verbs_rail_of(end, slice))) return;
    if (send_to_slot(end, slice, NOTICE, 0)) end->noticed = slice + 1;
}

rondo_result rd_verbs_greet(rd_verbs_end *end)
{
    for (int i = 0; i < end->rail_count; i++) {
        const rd_rail_write write = {.to = end->peer, .immediate = immediate(GREETING, 0)};
        if (!rd_rail_post(&end->rails[i], &write)) return rd_fail_errno("a first RDMA write was refused");
    }
    return RONDO_SUCCESS;
}

/* ---- Counting ---- */

static bool sent(rd_verbs_end *end, uint64_t slice)
{
    if (slice >= end->handed) return false;
    return slice < end->confirmed || frame_of(end, slice)->written <= rd_verbs_rail_of(end, slice)->done;
}

/* The header in a slot: is it what was expected? */
static bool is_expected(rd_verbs_end *end, uint64_t slice)
{
    const rd_verbs_frame *frame = frame_of(end, slice);
    rd_verbs_header header;
    memcpy(&header, slot_of(end, slice), sizeof header);
    end->seen_signature = le64toh(header.signature);
    end->seen_bytes = le32toh(header.bytes);
    if (le32toh(header.slice) != (uint32_t)slice) stray(end, le32toh(header.slice));
    return end->seen_signature == frame->signature && end->seen_bytes == frame->bytes;
}

/* The next slice has come, or it never will; stores it where it belongs. */
static bool received(rd_verbs_end *end, uint64_t slice)
{
    const rd_verbs_frame *frame = frame_of(end, slice);
    size_t at = slice % RD_VERBS_CREDITS;
    bool here = end->come[at] == slice + 1, notice = end->noticed == slice + 1;
    if (slice >= end->handed || (!here && !notice)) return false;
    if (here && end->direct[at]) {
        if (rd_verbs_is_gpu(end, frame->memory)) return rd_verbs_gpu_arrived(end);
        if (frame->at != frame->memory) memcpy(frame->memory, frame->at, frame->bytes);
        return true;
    }
    if (!is_expected(end, slice)) {
        if (end->ended == RONDO_LINK_OK) end->ended = RONDO_LINK_MISMATCH;
        return false;
    }
    if (!here) return false;
    if (frame->bytes > end->eager) stray(end, (uint32_t)slice);
    else if (frame->bytes) memcpy(frame->memory, slot_of(end, slice) + sizeof(rd_verbs_header), frame->bytes);
    return end->ended == RONDO_LINK_OK;
}

/* Moves what can be moved; true when something was. */
static bool move(rd_verbs_end *end)
{
    uint64_t before = end->handed + end->counted;
    bool sends = end->side == RD_SENDER;
    absorb_all(end);
    while (end->ended == RONDO_LINK_OK && end->handed < end->posted && (sends ? send_next(end) : tell_target(end)))
        end->handed++;
    while (end->counted < end->posted && (sends ? sent(end, end->counted) : received(end, end->counted)))
        rd_verbs_let_go(frame_of(end, end->counted++));
    if (!sends && end->ended == RONDO_LINK_OK) tell_credit(end);
    return end->handed + end->counted > before;
}

/* ---- Operations ---- */

static rd_verbs_frame *take(rd_verbs_end *end, void *memory, size_t bytes, uint64_t signature)
{
    rd_verbs_frame *frame = frame_of(end, end->posted++);
    *frame = (rd_verbs_frame){.memory = memory, .bytes = bytes, .signature = signature};
    return frame;
}

static rondo_link_result too_large(const rd_verbs_end *end, size_t bytes)
{
    rd_fail(RONDO_INTERNAL_ERROR, "link with rank %d over verbs: a slice of %zu bytes where %zu is the most",
            end->link.peer, bytes, end->link.slot_bytes);
    return RONDO_LINK_BROKEN;
}

static rondo_link_result too_short(const rd_verbs_end *end, size_t bytes)
{
    rd_fail(RONDO_INTERNAL_ERROR,
            "link with rank %d over verbs: a slice of %zu bytes comes through host memory, not to a GPU's",
            end->link.peer, bytes);
    return RONDO_LINK_BROKEN;
}

static rondo_link_result verbs_send(rondo_link *link, const void *from, size_t bytes, uint64_t signature)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    if (end->posted - end->counted >= link->slots) return RONDO_LINK_AGAIN;
    if (bytes > link->slot_bytes) return too_large(end, bytes);
    take(end, (void *)(uintptr_t)from /* only read */, bytes, signature);
    link->bytes_sent += bytes;
    while (end->ended == RONDO_LINK_OK && end->handed < end->posted && send_next(end)) end->handed++;
    return RONDO_LINK_OK;
}

static rondo_link_result verbs_recv(rondo_link *link, void *to, size_t bytes, uint64_t signature)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    if (end->posted - end->counted >= link->slots) return RONDO_LINK_AGAIN;
    if (bytes > link->slot_bytes) return too_large(end, bytes);
    if (bytes <= end->eager && bytes && rd_verbs_is_gpu(end, to)) return too_short(end, bytes);
    take(end, to, bytes, signature);
    while (end->ended == RONDO_LINK_OK && end->handed < end->posted && tell_target(end)) end->handed++;
    return RONDO_LINK_OK;
}

/* What came before the peer's end still counts: the peer's device had it acknowledged before the peer closed, but this
 * device may tell of it a moment later than the socket tells of the end. */
static rondo_link_result verbs_poll(rondo_link *link, uint64_t *count)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    if (move(end)) end->idle = 0;
    else if (++end->idle % IDLE_LOOKS == 0) {
        give_notice(end);
        rd_verbs_look_at_socket(end);
    }
    bool over = end->gone && rd_now() - end->gone_at > LAST_WORDS_NS;
    if (over) move(end);
    *count = end->counted;
    if (end->counted == end->posted) return RONDO_LINK_OK;
    if (end->ended == RONDO_LINK_OK && over) end->ended = RONDO_LINK_CLOSED;
    if (end->ended == RONDO_LINK_BROKEN) rd_fail(RONDO_REMOTE_ERROR, "%s", end->reason);
    return end->ended;
}

static rondo_link_result verbs_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    uint64_t count;
    end->bell = bell;
    for (int i = 0; i < end->rail_count; i++) {
        rd_verbs_device_news(end->rails[i].device);
        if (rd_rail_arm(&end->rails[i], bell) != RONDO_SUCCESS) return RONDO_LINK_BROKEN;
    }
    if (end->socket >= 0 && rd_bell_watch(bell, end->socket, EPOLLIN | EPOLLRDHUP) != RONDO_SUCCESS)
        return RONDO_LINK_BROKEN;
    give_notice(end);
    rd_verbs_look_at_socket(end);
    rondo_link_result result = verbs_poll(link, &count);
    return result != RONDO_LINK_OK || count > seen || end->gone ? RONDO_LINK_OK : RONDO_LINK_AGAIN;
}

/* Short slices were copied and are not the caller's any more. */
static rondo_link_result verbs_withdraw(rondo_link *link)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    bool lent = false;
    for (uint64_t slice = end->counted; slice < end->handed; slice++) {
        const rd_verbs_frame *frame = frame_of(end, slice);
        lent = lent || (frame->at && frame->at == frame->memory);
    }
    for (int i = 0; lent && i < end->rail_count; i++) rd_rail_stop(&end->rails[i]);
    rd_verbs_broken(end, "its memory was taken back", "a call ended early");
    return RONDO_LINK_OK;
}

static void verbs_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes)
{
    const rd_verbs_end *end = (const rd_verbs_end *)link;
    *signature = end->seen_signature;
    *bytes = end->seen_bytes;
}

/* Waits until the peer's device has acknowledged all writes: what is under way ends with the queue pair. A write that
 * nobody is told of may be the last one, so one follows that somebody is. */
static void flush(rd_verbs_end *end)
{
    int64_t deadline = rd_now() + FLUSH_NS;
    for (int i = 0; i < end->rail_count; i++) {
        rd_verbs_rail *rail = &end->rails[i];
        const rd_rail_write last = {.to = end->peer, .immediate = immediate(GREETING, 0), .told = true};
        bool asked = false;
        while (rail->done < rail->posted && end->ended == RONDO_LINK_OK && rd_now() < deadline) {
            if (!asked && rd_rail_has_room(rail)) asked = post(end, rail, &last);
            absorb(end, rail);
            rd_verbs_look_at_socket(end);
            if (end->gone) return;
            sched_yield();
        }
    }
}

/* First what was sent arrives, and what arrived is confirmed; then the socket's end says that no more will come. */
static void verbs_close(rondo_link *link)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    if (end->side == RD_SENDER) flush(end);
    else rd_verbs_last_words(end);
    if (end->socket >= 0) {
        if (end->bell) rd_bell_forget(end->bell, end->socket);
        shutdown(end->socket, SHUT_RDWR);
        close(end->socket);
    }
    for (int i = end->rail_count; i-- > 0;) rd_rail_stop(&end->rails[i]);
    for (int i = 0; i < RD_VERBS_SLICES; i++) rd_verbs_let_go(&end->frames[i]);
    rd_verbs_gpu_close(end);
    for (int i = end->rail_count; i-- > 0;) rd_rail_close(&end->rails[i], end->bell);
    munmap(end->memory, end->memory_bytes);
    free(end);
}

const rondo_link_ops rd_verbs_ops = {
    .size = sizeof(rondo_link_ops),
    .name = "verbs",
    .send = verbs_send,
    .recv = verbs_recv,
    .poll = verbs_poll,
    .arm = verbs_arm,
    .foresee = rd_verbs_foresee,
    .reach_gpu = rd_verbs_reach_gpu,
    .withdraw = verbs_withdraw,
    .seen = verbs_seen,
    .close = verbs_close,
};
