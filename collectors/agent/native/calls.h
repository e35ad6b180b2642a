/* The CUDA calls worth a row on the host's side, by callback id and why. */
#ifndef BRRR_CALLS_H
#define BRRR_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call {
    uint16_t cbid;
    uint8_t driver;      /* 0: runtime, 1: driver */
    uint8_t call_class;  /* enum call_class */
    uint32_t since;      /* CUPTI version that knows it */
    const char *name;
};

#define CALL_IDS 1024

extern const struct call CALLS[];
extern const size_t CALL_COUNT;

/* Interns the names. Once, from the agent's thread. */
void calls_name(void);

/* What a row of this id is, or NULL where it is worth none. */
struct call_row {
    uint32_t name_id;
    uint16_t call_class;
    bool known;
};
const struct call_row *call_row(bool driver, uint32_t cbid);

#endif
