#include "api_filter.h"

#include <string.h>

#include "clock.h"
#include "correlation.h"
#include "switch.h"
#include "wire.h"

/* Every launch pays 0.5 us for the driver's rows (H200, CUPTI 13.0.85), and in many trainers nearly
 * all launches go through the runtime: a kernel in 20 may do without a launch row before the rest
 * pays for it. Compiled models (Triton) and large matrix products (cuBLASLt) are far above that. */
#define WORTH 20
#define EVIDENCE 100  /* kernels before the driver's rows are given up */
#define LOOK_AGAIN 32 /* bursts: calls that launch nothing, such as waits, show only when asked for */
#define LEARN_EVERY_NS NS_PER_S

static struct {
    uint32_t want;
    bool without;                   /* the driver's rows told nothing */
    uint32_t bursts;                /* since they were last taken */
    uint64_t unexplained_per_mille; /* of the kernels: explained by no row of either API */
} known;

static struct {
    bool runtime, driver, turns;
    int64_t learn_ns;
    uint64_t unlaunched;
} run;

void api_filter_forget(void) { memset(&known, 0, sizeof known); }

static bool choose(void)
{
    if (known.without && !(known.want & WANT_ALLOCS) && ++known.bursts < LOOK_AGAIN)
        return false;
    known.bursts = 0;
    return true;
}

bool api_filter_begin(uint32_t want)
{
    if (want != known.want)
        api_filter_forget();
    known.want = want;
    memset(&run, 0, sizeof run);
    correlation_begin();
    return choose();
}

void api_filter_began(int64_t now_ns)
{
    run.runtime = switch_takes(KIND_RUNTIME);
    run.driver = switch_takes(KIND_DRIVER);
    run.learn_ns = now_ns + LEARN_EVERY_NS;
}

static void learn(const struct correlation *found)
{
    uint64_t kernels = found->kernels;
    run.unlaunched += found->unlaunched;
    if (!run.runtime)
        return;
    if (!run.driver) {
        uint64_t usual = known.unexplained_per_mille * kernels / 1000;
        if (found->unlaunched > usual && (found->unlaunched - usual) * WORTH > kernels)
            known.without = false;
    } else if (found->driver != 0 || found->by_driver * WORTH > kernels) {
        known.without = false;
    } else if (kernels >= EVIDENCE) {
        known.without = true;
        known.unexplained_per_mille = found->unlaunched * 1000 / kernels;
    }
}

bool api_filter_turn(int64_t now_ns)
{
    if (!run.runtime || run.turns || now_ns < run.learn_ns)
        return run.turns;
    run.learn_ns = now_ns + LEARN_EVERY_NS;
    struct correlation found = correlation_take(false);
    learn(&found);
    return run.turns = choose() != run.driver;
}

void api_filter_switch(const struct cupti *cupti)
{
    run.driver = switch_driver(cupti, known.want, !run.driver);
    run.turns = false;
}

enum launches api_filter_ended(void)
{
    struct correlation found = correlation_take(true);
    learn(&found);
    if (!run.runtime || !(known.want & WANT_LAUNCHES))
        return LAUNCHES_UNASKED;
    return run.unlaunched == 0 ? LAUNCHES_ALL : LAUNCHES_SOME;
}
