package flusher

// MaxCalls and MaxGiveBacks bound what waits for a master.
const (
	MaxCalls     = maxCalls
	MaxGiveBacks = maxGiveBacks
)

// Queued is how many calls wait for a lane to a master.
func (f *Flusher) Queued(master string) int {
	q := f.queue(master)
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.batch.calls)
}
