// The functions with which the two sources of the program two_modules call each other.
#pragma once

#include "check.h"

// Runs the second module's kernel, which writes its state after the step to `out` (device memory).
void RunSecond(int* out);
void SetSecondStep(int value);
int ReadSecondState();
