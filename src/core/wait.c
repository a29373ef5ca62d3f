/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c - driving tasks to their ends. While there is something to do, do it. When there is not: poll for a while,
 * then let others run, then sleep on the doorbell, which a peer's slice, a socket, the service thread or an abort
 * rings. A call never waits for the service thread; it reads one word that the service thread may set.
 *
 * One task or several, on as many communicators: they take turns, and with several a sleep ends when any bell rings.
 */
#include "core/device.h"

#include "base/clock.h"
#include "base/hot.h"
#include "base/log.h"
#include "reduce/device.h"

#include <limits.h>
#include <sched.h>
#include <time.h>

#define YIELDS      64         /* after the spinning, before the first sleep */
#define WITHDRAW_NS 1000000000 /* how long a failed call waits for a peer to leave the caller's buffers */
#define LOOK_MOVES  4096       /* a busy call looks at the clock once in so many moves */
#define LOOK_NS     1000000000 /* a sleep's longest: a lost wake-up would cost this, not the job */
#define NAP_NS      50000      /* a sleep beside a GPU, which rings no bell */
#define TURN_NS     1000000    /* a sleep's longest while some task waits for its turn, which rings no bell */

/* ---- One task ---- */

/* The caller's buffers are the caller's again when the call returns, also when it failed. A peer, or this rank's GPU,
 * is inside them for no longer than a slice takes; one that was stopped there is not waited for. */
RD_APART void take_back(rondo_comm *comm, rd_op *op)
{
    int64_t until = rd_now() + WITHDRAW_NS;
    while (!rd_op_withdraw(op)) {
        if (rd_now() > until) {
            rd_log(RD_LOG_WARN, "rank %d: %s that stands still may yet write to the buffers of the failed call",
                   comm->rank, op->engine ? "a GPU" : "a peer");
            return;
        }
        sched_yield();
    }
}

static void finish(rd_task *task, rondo_result result)
{
    if (result != RONDO_SUCCESS && task->running) take_back(task->comm, &task->comm->op);
    if (result != RONDO_SUCCESS && task->passing) take_back(task->comm, &task->comm->messages);
    rd_task_finish(task, result);
}

/* Nothing could be done for a while, or much was done for long: is there a reason to give up? RONDO_IN_PROGRESS: no. */
RD_APART rondo_result reason_to_end(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char left[512];
    int64_t now = rd_now();
    if (!task->deadline) {
        task->deadline = rd_deadline(comm->settings.timeout_s);
        task->warn_at = rd_deadline(comm->settings.slow_warning_s);
    }
    if (now >= task->deadline) return rd_explain_timeout(task);
    if (now >= task->warn_at) {
        task->warn_at = INT64_MAX;
        rd_explain_slow(task);
    }
    if (!atomic_exchange(&comm->woken, 0)) return RONDO_IN_PROGRESS;
    if (task->running && rd_member_left(comm->member, comm->calls - 1, left, sizeof left))
        return rd_explain_left(task, left);
    if (rd_task_bereft(task) >= 0) {
        bool busy = rd_task_on_gpu_alone(task); /* with what has come */
        if (task->bereft && !busy) return rd_explain_bereft(task);
        task->bereft = !busy; /* what it sent last may have come since this rank looked */
        atomic_store(&comm->woken, 1);
    }
    if (!task->warned) task->warned = rd_explain_stopped(task);
    return RONDO_IN_PROGRESS;
}

/* A sleep that nobody ended, and then there was something to do: a wake-up was lost, or it came that very moment. */
RD_APART void note_overslept(rondo_comm *comm, rd_progress progress)
{
    if (progress != RD_IDLE) {
        comm->missed_bells++;
        rd_log(RD_LOG_INFO, "rank %d: slept %.3g s beside something to do", comm->rank, LOOK_NS * 1e-9);
    }
    comm->overslept = false;
}

RD_HOT rondo_result result_of(rd_task *task, rd_progress progress)
{
    rondo_result stop = rd_comm_stopped(task->comm);
    if (stop == RONDO_ABORTED) return stop;
    if (progress == RD_DONE) return RONDO_SUCCESS;
    if (progress == RD_FAILED && task->result != RONDO_IN_PROGRESS) return task->result;
    /* A peer may die after it has done its part: what it sent is used up before its end counts. */
    if (stop && progress != RD_MOVED && !rd_task_on_gpu_alone(task)) return stop;
    if (progress == RD_FAILED) return rd_explain_failure(task);
    if (progress == RD_MOVED && ++task->moved % LOOK_MOVES == 0) return reason_to_end(task);
    return RONDO_IN_PROGRESS;
}

/* Whether its turn has come, and it need not end before it begins: then it has a result. */
RD_HOT bool may_start(rd_task *task)
{
    rondo_comm *comm = task->comm;
    if (!rd_task_is_next(task)) return false;
    /* What failed before this one's turn has left the links in the middle of something. */
    rondo_result stop = rd_comm_stopped(comm);
    if (stop) {
        finish(task, stop);
        return false;
    }
    if (task->mark && !rd_gpu_mark_passed(task->mark)) return false;
    atomic_store_explicit(&comm->woken, 1, memory_order_relaxed); /* who left before it began matters, too */
    return true;
}

/* One look at a task: true when something happened. */
RD_HOT bool look_at(rd_task *task)
{
    rondo_comm *comm = task->comm;
    if (!task->started && !may_start(task)) return task->result != RONDO_IN_PROGRESS;
    rd_progress progress = rd_task_advance(task);
    if (progress == RD_MOVED) task->bereft = false;
    rondo_result result = result_of(task, progress);
    if (comm->overslept) note_overslept(comm, progress);
    if (result == RONDO_IN_PROGRESS) return progress == RD_MOVED;
    finish(task, result);
    return true;
}

/* ---- Sleeping ---- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Nothing that came since may be missed: RD_MOVED says that something did, RD_FAILED that a link cannot be waited for.
 */
static rd_progress arm(rd_task *task)
{
    rd_bell_arm(&task->comm->bell);
    rd_progress progress = rd_task_arm(task);
    if (progress == RD_IDLE) progress = rd_task_look(task);
    if (progress == RD_IDLE && (rd_comm_stopped(task->comm) || atomic_load(&task->comm->woken))) return RD_MOVED;
    return progress;
}

static void sleep_on_one(rd_task *task)
{
    rondo_comm *comm = task->comm;
    int64_t now = rd_now(), left = earlier(task->warn_at, task->deadline) - now;
    rd_progress progress = left > 0 ? arm(task) : RD_MOVED;
    if (progress != RD_IDLE) {
        rd_bell_disarm(&comm->bell);
        if (progress == RD_FAILED) finish(task, rd_explain_failure(task));
        return;
    }
    rd_bell_sleep(&comm->bell, earlier(left, LOOK_NS));
    comm->overslept = left > LOOK_NS && rd_now() - now >= LOOK_NS;
}

static void sleep_on_all(rd_task *const *tasks, int n, rondo_bell **bells)
{
    rd_task *failed = NULL;
    rondo_result result = RONDO_IN_PROGRESS;
    int armed = 0;
    int64_t now = rd_now(), left = LOOK_NS;
    bool sleeps = true;
    for (int i = 0; i < n && sleeps; i++) {
        rd_task *task = tasks[i];
        if (task->result != RONDO_IN_PROGRESS) continue;
        if (!task->started) {
            left = earlier(left, TURN_NS);
            continue;
        }
        left = earlier(left, earlier(task->warn_at, task->deadline) - now);
        bells[armed++] = &task->comm->bell;
        rd_progress progress = RD_FAILED;
        if (rd_bell_use_epoll(&task->comm->bell) != RONDO_SUCCESS)
            result = rd_comm_end(task->comm, RONDO_SYSTEM_ERROR, rd_last_error());
        else
            progress = arm(task);
        sleeps = progress == RD_IDLE;
        if (progress == RD_FAILED) failed = task;
    }
    if (sleeps && left > 0) rd_bells_sleep(bells, armed, left);
    for (int i = 0; i < armed; i++) rd_bell_disarm(bells[i]);
    /* Last: the communicator of a task that is finished may be gone. */
    if (failed) finish(failed, result == RONDO_IN_PROGRESS ? rd_explain_failure(failed) : result);
}

/* While some task waits for its GPU, or for another's. Whether that still works is asked less often than how far it is. */
static bool nap_beside_gpu(rd_task *const *tasks, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        rd_task *task = tasks[i];
        if (task->result != RONDO_IN_PROGRESS || !(rd_task_on_gpu(task) || rd_task_beside_kernels(task))) continue;
        rd_engine *engine = task->started ? rd_device_engine(task->comm->device) : NULL;
        if (engine && engine->ops->check(engine) != RONDO_SUCCESS) finish(task, rd_explain_gpu(task));
        any = true;
    }
    if (any) nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    return any;
}

/* Nothing happened for a while: look at the clock and at the control plane, then sleep. */
static void wait_for_all(rd_task *const *tasks, int n, rondo_bell **bells)
{
    for (int i = 0; i < n; i++) {
        if (tasks[i]->result != RONDO_IN_PROGRESS || !tasks[i]->started) continue;
        rondo_result result = reason_to_end(tasks[i]);
        if (result == RONDO_IN_PROGRESS) continue;
        finish(tasks[i], result);
        return;
    }
    if (nap_beside_gpu(tasks, n)) return;
    if (n == 1)
        sleep_on_one(tasks[0]);
    else
        sleep_on_all(tasks, n, bells);
}

/* Before a yield: as few as one of them asks for. */
static long polls(rd_task *const *tasks, int n)
{
    long most = LONG_MAX;
    for (int i = 0; i < n; i++) {
        if (tasks[i]->result != RONDO_IN_PROGRESS) continue; /* its communicator may be gone */
        const rondo_comm *comm = tasks[i]->comm;
        bool meet = tasks[i]->running && (comm->op.by == RD_BY_FLAT || comm->op.by == RD_BY_EXCHANGE);
        long few = meet ? comm->spin : comm->ring_spin;
        if (few < most) most = few;
    }
    return most;
}

/* Nothing happened at the last `idle` looks. */
RD_APART void wait_a_little(rd_task *const *tasks, int n, rondo_bell **bells, long idle, long *spin)
{
    if (idle == 1) *spin = polls(tasks, n);
    if (idle <= *spin)
        rd_relax();
    else if (idle <= *spin + YIELDS)
        sched_yield();
    else
        wait_for_all(tasks, n, bells);
}

static void drive_one(rd_task *task)
{
    long spin = 0, idle = 0;
    while (task->result == RONDO_IN_PROGRESS)
        if (look_at(task))
            idle = 0;
        else
            wait_a_little(&task, 1, NULL, ++idle, &spin);
}

RD_APART void drive_all(rd_task *const *tasks, int n, rondo_bell **bells)
{
    int left = n;
    for (long spin = 0, idle = 0; left;) {
        bool moved = false;
        left = 0;
        for (int i = 0; i < n; i++) {
            if (tasks[i]->result != RONDO_IN_PROGRESS) continue;
            moved = look_at(tasks[i]) || moved;
            left += tasks[i]->result == RONDO_IN_PROGRESS;
        }
        idle = moved ? 0 : idle + 1;
        if (!moved && left) wait_a_little(tasks, n, bells, idle, &spin);
    }
}

void rd_drive_on(rd_task *task, rd_progress progress)
{
    unsigned floats = rd_fp_enter();
    rondo_result result = result_of(task, progress);
    if (result != RONDO_IN_PROGRESS) finish(task, result);
    drive_one(task);
    rd_fp_leave(floats);
}

void rd_drive(rd_task *const *tasks, int n, rondo_bell **bells)
{
    unsigned floats = rd_fp_enter();
    if (n == 1) drive_one(tasks[0]);
    else drive_all(tasks, n, bells);
    rd_fp_leave(floats);
}
