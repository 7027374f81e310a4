/* gguf_types.c - the numbers that GGUF has for element types. */
#include "format/gguf.h"

/* Numbers are never used again; those without a dtype were given up, or mica has no use for them. */
static const mica__gguf_type types[] = {
    {0, "F32", MICA_DTYPE_F32},          {1, "F16", MICA_DTYPE_F16},
    {2, "Q4_0", MICA_DTYPE_Q4_0},        {3, "Q4_1", MICA_DTYPE_Q4_1},
    {4, "Q4_2", MICA_DTYPE_NONE},        {5, "Q4_3", MICA_DTYPE_NONE},
    {6, "Q5_0", MICA_DTYPE_Q5_0},        {7, "Q5_1", MICA_DTYPE_Q5_1},
    {8, "Q8_0", MICA_DTYPE_Q8_0},        {9, "Q8_1", MICA_DTYPE_Q8_1},
    {10, "Q2_K", MICA_DTYPE_Q2_K},       {11, "Q3_K", MICA_DTYPE_Q3_K},
    {12, "Q4_K", MICA_DTYPE_Q4_K},       {13, "Q5_K", MICA_DTYPE_Q5_K},
    {14, "Q6_K", MICA_DTYPE_Q6_K},       {15, "Q8_K", MICA_DTYPE_Q8_K},
    {16, "IQ2_XXS", MICA_DTYPE_IQ2_XXS}, {17, "IQ2_XS", MICA_DTYPE_IQ2_XS},
    {18, "IQ3_XXS", MICA_DTYPE_IQ3_XXS}, {19, "IQ1_S", MICA_DTYPE_IQ1_S},
    {20, "IQ4_NL", MICA_DTYPE_IQ4_NL},   {21, "IQ3_S", MICA_DTYPE_IQ3_S},
    {22, "IQ2_S", MICA_DTYPE_IQ2_S},     {23, "IQ4_XS", MICA_DTYPE_IQ4_XS},
    {24, "I8", MICA_DTYPE_I8},           {25, "I16", MICA_DTYPE_I16},
    {26, "I32", MICA_DTYPE_I32},         {27, "I64", MICA_DTYPE_I64},
    {28, "F64", MICA_DTYPE_F64},         {29, "IQ1_M", MICA_DTYPE_IQ1_M},
    {30, "BF16", MICA_DTYPE_BF16},       {31, "Q4_0_4_4", MICA_DTYPE_NONE},
    {32, "Q4_0_4_8", MICA_DTYPE_NONE},   {33, "Q4_0_8_8", MICA_DTYPE_NONE},
    {34, "TQ1_0", MICA_DTYPE_TQ1_0},     {35, "TQ2_0", MICA_DTYPE_TQ2_0},
    {36, "IQ4_NL_4_4", MICA_DTYPE_NONE}, {37, "IQ4_NL_4_8", MICA_DTYPE_NONE},
    {38, "IQ4_NL_8_8", MICA_DTYPE_NONE}, {39, "MXFP4", MICA_DTYPE_MXFP4},
    {40, "NVFP4", MICA_DTYPE_NVFP4},     {41, "Q1_0", MICA_DTYPE_NONE},
    {42, "Q2_0", MICA_DTYPE_NONE},
};

#define TYPE_COUNT (sizeof types / sizeof types[0])

const mica__gguf_type *mica__gguf_type_by_id(uint32_t id)
{
    return id < TYPE_COUNT ? &types[id] : NULL; /* the table has no gaps: row = number */
}

const mica__gguf_type *mica__gguf_type_by_dtype(mica_dtype dtype)
{
    for (size_t i = 0; dtype != MICA_DTYPE_NONE && i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}
