package cluster

import (
	"encoding/binary"
	"errors"
)

// message says what is kept of a protobuf message: the fields named, of each the part
// that its own message says; nil keeps a field whole. Numbers are those of
// k8s.io/api/*/generated.proto, which the API never changes.
type message map[uint64]message

// entries stands for a map of which only the entries of certain keys are kept, or for
// conditions of which only those of certain types are.
var entries = message{}

// mapKey is the field of a map's entry that holds its key, and of a condition its type.
const mapKey = 1

// errWire is an answer that is not protobuf as API servers write it.
var errWire = errors.New("the answer is not protobuf that can be read")

// Wire types (https://protobuf.dev/programming-guides/encoding/#structure).
const (
	wireVarint = 0
	wireI64    = 1
	wireBytes  = 2
	wireI32    = 5
)

// field is one field of a message on the wire.
type field struct {
	number uint64
	// body is where its content begins, after its tag and length; end where it ends.
	body, end int
	// length is how many bytes state the length; 0 for what has none.
	length int
}

// next reads the field that begins at from.
func next(b []byte, from int) (field, error) {
	tag, n := binary.Uvarint(b[from:])
	if n <= 0 {
		return field{}, errWire
	}
	f := field{number: tag >> 3, body: from + n}
	switch tag & 7 {
	case wireVarint:
		if _, n = binary.Uvarint(b[f.body:]); n <= 0 {
			return field{}, errWire
		}
		f.end = f.body + n
	case wireI64:
		f.end = f.body + 8
	case wireI32:
		f.end = f.body + 4
	case wireBytes:
		size, n := binary.Uvarint(b[f.body:])
		if n <= 0 || size > uint64(len(b)-f.body-n) {
			return field{}, errWire
		}
		f.length = n
		f.body += n
		f.end = f.body + int(size)
	default:
		return field{}, errWire
	}
	if f.end > len(b) {
		return field{}, errWire
	}
	return f, nil
}

// prune throws away what m does not keep of the message b, in place, and gives what is
// left; of its entries those with one of the keys are kept, and of a part that nothing
// is left of not even that it was there. Most of a pod is never
// looked at, and decoding it would be most of the work of reading a cluster.
func prune(b []byte, m message, keys map[string]bool) ([]byte, error) {
	to := 0
	for from := 0; from < len(b); {
		f, err := next(b, from)
		if err != nil {
			return nil, err
		}
		sub, ok := m[f.number]
		switch {
		case !ok:
		case sub == nil || f.length == 0:
			to += copy(b[to:], b[from:f.end])
		case len(sub) == 0:
			wanted, err := hasKey(b[f.body:f.end], keys)
			if err != nil {
				return nil, err
			}
			if wanted {
				to += copy(b[to:], b[from:f.end])
			}
		default:
			kept, err := prune(b[f.body:f.end], sub, keys)
			if err != nil {
				return nil, err
			}
			if len(kept) == 0 {
				break
			}
			head := copy(b[to:], b[from:f.body])
			to += head
			padded(b[to-f.length:to], uint64(len(kept)))
			to += copy(b[to:], kept)
		}
		from = f.end
	}
	return b[:to], nil
}

// hasKey tells whether a map's entry has one of the keys.
func hasKey(entry []byte, keys map[string]bool) (bool, error) {
	for from := 0; from < len(entry); {
		f, err := next(entry, from)
		if err != nil {
			return false, err
		}
		if f.number == mapKey && f.length > 0 {
			return keys[string(entry[f.body:f.end])], nil
		}
		from = f.end
	}
	// A key that is not there is the empty one.
	return keys[""], nil
}

// padded writes v as a varint of exactly len(b) bytes.
func padded(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v&0x7f) | 0x80
		v >>= 7
	}
	b[len(b)-1] &= 0x7f
}

// both is a message that keeps what each of the given keeps.
func both(all ...message) message {
	out := message{}
	for _, m := range all {
		for number, sub := range m {
			had, ok := out[number]
			switch {
			case !ok:
				out[number] = sub
			case had == nil || sub == nil:
				out[number] = nil
			default:
				out[number] = both(had, sub)
			}
		}
	}
	return out
}
