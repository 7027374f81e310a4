/* client_model.c - a program of someone else that uses models: says the version and that a family is known. */
#include <stdio.h>

#include <mica/mica.h>
#include <mica/model.h>

int main(void)
{
    printf("%s\n", mica_version());
    return mica_model_families()[0] == NULL;
}
