// Package cutover moves production traffic from one cluster of a pair to the other
// and back: weighted record sets in Route 53 and weighted target groups of an ALB
// behind one Traffic interface, in stages that gates hold or put back.
//
// Every change is journaled with the old and the new state whole before it is sent,
// is compared with the world before and after, and is recognised in the world when
// its answer was lost (docs: semantics 8, 9, 12 to 20).
package cutover
