package redislink

// ForgetMetrics makes the metrics those of a manager that has just started.
func ForgetMetrics() { up.Reset() }
