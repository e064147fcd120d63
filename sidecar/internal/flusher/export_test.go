package flusher

// MaxCalls and MaxErrands bound what waits for a master.
const (
	MaxCalls   = maxCalls
	MaxErrands = maxErrands
)

// Queued is how many calls wait for a lane to a master.
func (f *Flusher) Queued(master string) int {
	q := f.queue(master)
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.batch.calls)
}
