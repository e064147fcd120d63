package policy

// ForgetMetrics makes the metrics those of a manager that has just started.
func ForgetMetrics() {
	conditionMetric.mu.Lock()
	defer conditionMetric.mu.Unlock()
	conditionMetric.byPolicy = nil
}
