// SPDX-License-Identifier: Apache-2.0
// The reference model: it follows every step of every NIC and says what the step may have done. It
// shares no code with the NIC but the packet decoder.
#ifndef VB_SIM_MODEL_H
#define VB_SIM_MODEL_H

#include "sim/world.h"
#include "wire/packet.h"

// What a frame or a step should have done to memory, and the verdict it should have got.
struct vb_forecast {
    enum vb_rx_verdict verdict;
    struct vb_spans reads, writes;
    const uint8_t *bytes; // written, or read
};

// The observer of a node's processing unit.
void vb_model_observe(void *node, const struct vb_step *step);
// The processing unit found nothing to do.
void vb_model_idle(struct vb_node *node);

// The port is about to take frames: they must be as they were written.
void vb_model_sending(struct vb_node *node);

// The host has posted; `work` and `intake` are complete but for what the model adds.
void vb_model_posted(struct vb_ep *ep, struct vb_work *work);
void vb_model_posted_recv(struct vb_ep *ep);
// The host has changed the state, with these attributes.
void vb_model_modified(struct vb_ep *ep, const struct vb_qpc_mods *mods);
// The host has polled a completion.
void vb_model_polled(struct vb_node *node, uint32_t cq, const struct vb_wc *wc);
// The host polled and got nothing.
void vb_model_polled_nothing(struct vb_node *node, uint32_t cq);
// The end: nothing may be outstanding, all memory must be as foreseen.
void vb_model_finish(struct vb_world *w);

// ---- between the parts of the model

#define VB_MODEL_CHECK(ep, condition, ...)       \
    do {                                         \
        if (!(condition))                        \
            vb_model_violate((ep), __VA_ARGS__); \
    } while (0)

__attribute__((format(printf, 2, 3))) void vb_model_violate(struct vb_ep *ep, const char *format,
                                                            ...);
// Packets that `len` bytes take.
uint32_t vb_model_packets(const struct vb_ep *ep, uint32_t len);
// Compares a step's touched memory with the forecast, and takes over what was written.
void vb_model_judge_touches(struct vb_ep *ep, const struct vb_step *step,
                            const struct vb_forecast *f);
// The queue pair goes to ERR by itself.
void vb_model_failed(struct vb_ep *ep);

// requester
void vb_model_ask_start(struct vb_ep *ep, const struct vb_qpc_mods *mods);
void vb_model_ask_fetch(struct vb_ep *ep, const struct vb_step *step);
void vb_model_ask_exec(struct vb_ep *ep, const struct vb_step *step);
void vb_model_ask_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt);
void vb_model_ask_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f);
void vb_model_ask_timer(struct vb_ep *ep, const struct vb_step *step);
void vb_model_ask_idle(struct vb_ep *ep);
// The peer has executed a packet of ours: it must be one that we sent.
void vb_model_ask_executed(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet);
// A request may fail for a local reason only if there is one.
bool vb_model_is_locally_wrong(struct vb_ep *ep, const struct vb_work *work, uint8_t syndrome);

// responder
void vb_model_answer_start(struct vb_ep *ep, const struct vb_qpc_mods *mods);
void vb_model_answer_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f);
void vb_model_answer_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt);
void vb_model_answer_idle(struct vb_ep *ep);
// The peer has stored a response of ours: it must be one that we sent.
void vb_model_answer_stored(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet);

// completions
void vb_model_complete(struct vb_ep *ep, const struct vb_step *step);

#endif
