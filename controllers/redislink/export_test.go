package redislink

// ForgetMetrics makes the metrics those of a manager that has just started.
func ForgetMetrics() { up.Reset() }

// Watcher exposes what a watcher believes of looks, one after the other.
type Watcher struct{ watcher }

// Believes tells of one look at the session, which found slowness or anything else.
func (w *Watcher) Believes(s *Session, slow bool) bool {
	believed := w.believes((*session)(s), &health{slow: slow})
	w.seen = (*session)(s)
	return believed
}

// Session is one connection.
type Session session

// Slow reports whether an error is of nodes that did not answer in time.
func Slow(err error) bool { return slow(err) }
