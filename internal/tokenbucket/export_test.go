package tokenbucket

import "fmt"

// LibraryWithClock is the library under another name, with another definition of now_us. All else is the same source.
func LibraryWithClock(name, clock string) Source { return assemble(name, clock) }

// DecodeResults reads a reply to the charges.
func DecodeResults(packed []byte, charges []Charge) ([]ChargeResult, error) {
	return decodeResults(packed, charges)
}

// NewTakeOf is a call of another library's function.
func NewTakeOf(library, key string, charges []Charge) (*Take, error) {
	take, err := NewTake(key, charges)
	if err == nil {
		take.Args()[1] = library + "_take"
	}
	return take, err
}

// WithHeader gives a library of the name with any body, as a manager of that revision would load it.
func WithHeader(name string, revision int, body string) string {
	return fmt.Sprintf("#!lua name=%s\n"+revisionLine+"\n%s", name, revision, digestOf(body), body)
}

// SourceOf is a library of this revision with any body.
func SourceOf(body string) Source { return Source{Digest: digestOf(body)} }

// NewGiveBackOf is a call of another library's function.
func NewGiveBackOf(library, key string, receipts []Receipt) (*GiveBack, error) {
	giveBack, err := NewGiveBack(key, receipts)
	if err == nil {
		giveBack.Args()[1] = library + "_giveback"
	}
	return giveBack, err
}

// With is the receipt with another epoch or server, as none that a reply tells.
func (r Receipt) With(epochs, servers uint64) Receipt {
	r.epoch += epochs
	r.server += servers
	return r
}
