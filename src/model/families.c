/* families.c - the table of families: what differs between them besides their numbers. */
#include "model/parts.h"

#include <stdio.h>
#include <string.h>

#define COMMON \
    (MICA__BIT(TOKEN_EMBEDDING) | MICA__BIT(OUTPUT_NORM) | MICA__BIT(ATTENTION_NORM) | MICA__BIT(O))
#define APART (MICA__BIT(Q) | MICA__BIT(K) | MICA__BIT(V))
#define DENSE (MICA__BIT(FFN_NORM) | MICA__BIT(UP) | MICA__BIT(DOWN))
#define AFTER (MICA__BIT(ATTENTION_POST_NORM) | MICA__BIT(FFN_POST_NORM))
#define HEAD_NORMS (MICA__BIT(Q_NORM) | MICA__BIT(K_NORM))

static const mica__family families[] = {
    /* Llama 1 to 3, Mistral, Mixtral (whose layers are routed), SmolLM */
    {.name = "llama", .needs = COMMON | APART | MICA__BIT(FFN_NORM)},
    {.name = "qwen2", .neox = 1, .needs = COMMON | APART | DENSE | MICA__BIT(GATE)},
    {.name = "qwen3", .neox = 1, .needs = COMMON | APART | HEAD_NORMS | DENSE | MICA__BIT(GATE)},
    /* some layers may be dense */
    {.name = "qwen3moe", .neox = 1, .needs = COMMON | APART | HEAD_NORMS | MICA__BIT(FFN_NORM)},
    {.name = "gemma2",
     .neox = 1,
     .activation = MICA__GELU,
     .scaled_embedding = 1,
     .pattern = 2,
     .attention_softcap = 50,
     .final_softcap = 30,
     .needs = COMMON | APART | DENSE | AFTER | MICA__BIT(GATE)},
    {.name = "gemma3",
     .neox = 1,
     .activation = MICA__GELU,
     .scaled_embedding = 1,
     .pattern = 6,
     .needs = COMMON | APART | HEAD_NORMS | DENSE | AFTER | MICA__BIT(GATE)},
    {.name = "phi3", .neox = 1, .needs = COMMON | MICA__BIT(QKV) | DENSE},
    {.name = "gpt2",
     .no_rope = 1,
     .layer_norm = 1,
     .activation = MICA__GELU,
     .ungated = 1,
     .needs = COMMON | MICA__BIT(QKV) | DENSE | MICA__BIT(POSITION_EMBEDDING)},
    {.name = "bert",
     .no_rope = 1,
     .layer_norm = 1,
     .activation = MICA__GELU_ERF,
     .ungated = 1,
     .encoder = 1,
     .needs = APART | MICA__BIT(TOKEN_EMBEDDING) | MICA__BIT(POSITION_EMBEDDING) | MICA__BIT(O) |
              MICA__BIT(UP) | MICA__BIT(DOWN) | MICA__BIT(ATTENTION_OUTPUT_NORM) |
              MICA__BIT(LAYER_OUTPUT_NORM)},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

static const char *const names[FAMILY_COUNT + 1] = {"llama",  "qwen2", "qwen3", "qwen3moe", "gemma2",
                                                    "gemma3", "phi3",  "gpt2",  "bert"};

const char *const *mica_model_families(void)
{
    return names;
}

mica_status mica__family_find(const char *name, size_t length, const mica__family **out)
{
    char known[200] = "";
    size_t used = 0;
    *out = NULL;
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strlen(families[i].name) == length && memcmp(families[i].name, name, length) == 0) {
            *out = &families[i];
            return MICA_OK;
        }
        if (used < sizeof known)
            used +=
                (size_t)snprintf(known + used, sizeof known - used, i == 0 ? "%s" : ", %s", families[i].name);
    }
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "the model is of the family \"%.*s\", which mica does not run; it runs %s",
                      (int)(length < 64 ? length : 64), name, known);
}
