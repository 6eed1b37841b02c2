// Package state holds the pure data that every part of eksbg shares (Plan,
// StepSpec, Observation, Record) and the journal that keeps it: one local file,
// append-only, one JSON record a line, fsynced before every change that a step
// makes in the world.
//
// The package imports nothing else of eksbg. It reads no clock of its own, prints
// nothing and never exits.
package state
