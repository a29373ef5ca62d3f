/* SPDX-License-Identifier: Apache-2.0
 *
 * around.c - what ranks told of their networks, in the words of src/topo/ring.h; and back, from a ring's hops to
 * networks.
 */
#include "core/card.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* ---- Networks by number ---- */

/* Equal networks have equal numbers, others, for all practical purposes, others; never 0. */
static uint64_t number_of_network(const rd_interface *interface)
{
    char text[RD_ADDRESS_TEXT];
    uint64_t number[2];
    rd_interface_network(interface, text);
    rd_hash(number, sizeof number, "network", text, strlen(text));
    return number[0] | 1;
}

static uint64_t number_of_address(const rd_interface *interface)
{
    rd_interface alone = *interface;
    alone.bits = alone.at.at.ss_family == AF_INET ? 32 : 128;
    return number_of_network(&alone);
}

/* The addresses of all hosts, as the first rank of each has told; sorted, so that those that several have lie together:
 * private bridges, on which they do not meet. */
typedef struct rd_known {
    uint64_t *numbers;
    size_t count;
} rd_known;

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static rondo_result know(const rd_card *cards, const rd_place *places, int n, rd_known *known)
{
    known->numbers = calloc((size_t)n * RD_INTERFACES, sizeof *known->numbers);
    if (!known->numbers) return rd_fail_errno("no memory for the addresses of %d ranks", n);
    for (int r = 0; r < n; r++) {
        const rd_contact *contact = &cards[r].contact;
        if (places[r].host != r) continue; /* hosts are numbered by their first ranks */
        for (int i = 0; i < contact->interfaces; i++)
            known->numbers[known->count++] = number_of_address(&contact->interface[i]);
    }
    qsort(known->numbers, known->count, sizeof *known->numbers, by_number);
    return RONDO_SUCCESS;
}

static bool on_several_hosts(const rd_known *known, const rd_interface *interface)
{
    uint64_t number = number_of_address(interface);
    const uint64_t *at = bsearch(&number, known->numbers, known->count, sizeof *known->numbers, by_number);
    if (!at) return false;
    return (at > known->numbers && at[-1] == number) || (at + 1 < known->numbers + known->count && at[1] == number);
}

/* ---- Interfaces ---- */

/* The interface's entry in the list, or a new one at its end. */
static rd_nic *entry_for(rd_around *around, const rd_interface *interface, rd_link_kind near)
{
    for (int i = 0; i < around->nics; i++)
        if (strcmp(around->nic[i].name, interface->name) == 0) return &around->nic[i];
    rd_nic *nic = &around->nic[around->nics++];
    memcpy(nic->name, interface->name, sizeof nic->name);
    nic->mbit = interface->mbits;
    nic->link = rd_link_of(near);
    return nic;
}

/* A second card on one network is not used: see rd_contact_networks. */
static bool has_network(const rd_around *around, uint64_t number)
{
    for (int i = 0; i < around->nics; i++)
        for (int k = 0; k < RD_MAX_NETWORKS; k++)
            if (around->nic[i].networks[k] == number) return true;
    return false;
}

static void tell(const rd_card *card, const rd_known *known, rd_around *around)
{
    const rd_contact *contact = &card->contact;
    *around = (rd_around){.gpu = RD_NO_GPU};
    for (int i = 0; i < contact->interfaces; i++) {
        rd_nic *nic = entry_for(around, &contact->interface[i], card->near[i]);
        int networks = 0;
        while (networks < RD_MAX_NETWORKS && nic->networks[networks]) networks++;
        uint64_t number = number_of_network(&contact->interface[i]);
        if (networks == RD_MAX_NETWORKS || on_several_hosts(known, &contact->interface[i]) ||
            has_network(around, number))
            continue;
        nic->networks[networks] = number;
        nic->up = 1;
    }
}

rondo_result rd_cards_around(const rd_card *cards, const rd_place *places, int n, rd_around **around)
{
    rd_known known = {0};
    rd_around *all = calloc((size_t)n, sizeof *all);
    rondo_result result = all ? know(cards, places, n, &known) : rd_fail_errno("no memory for what %d ranks told", n);
    for (int r = 0; r < n && result == RONDO_SUCCESS; r++) tell(&cards[r], &known, &all[r]);
    free(known.numbers);
    if (result == RONDO_SUCCESS)
        *around = all;
    else
        free(all);
    return result;
}

int rd_cards_network(const rd_card *from, const rd_nic *nic, const rd_card *to, const rd_nic *nic_there, int otherwise)
{
    rd_route networks[RD_INTERFACES];
    int n = rd_contact_networks(&from->contact, &to->contact, networks);
    for (int i = 0; nic && i < n; i++)
        if (strcmp(from->contact.interface[networks[i].from].name, nic->name) == 0 &&
            strcmp(to->contact.interface[networks[i].to].name, nic_there->name) == 0)
            return i;
    return otherwise;
}
