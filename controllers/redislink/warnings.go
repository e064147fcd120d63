package redislink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/portero-dev/portero/internal/redisadmin"
)

// Reasons of the Events on the admin Secret.
const (
	reasonWarned  = "RedisSettings"
	reasonCleared = "RedisSettingsGood"
	actionLooked  = "CheckServer"
)

// maxNote keeps an Event's note below the API's bound of 1024 bytes.
const maxNote = 1000

// Warning says which settings of Redis make Portero keep less than it promises, or could not be read; empty when all is
// well, or nobody looked yet.
func (l *Link) Warning() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return summarize(l.warnings)
}

// lookAtSettings tells what changed since the last look: in metrics, a log line, an Event, and through Changed. While a
// node does not answer nothing is taken back.
func (l *Link) lookAtSettings(ctx context.Context, s *session) {
	look, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := s.admin.CheckServer(look)
	log := logf.FromContext(ctx)
	l.mu.Lock()
	if err != nil {
		log.V(1).Info("Look at the servers' settings is incomplete", "error", err.Error())
		for _, before := range l.warnings {
			if !slices.Contains(found, before) {
				found = append(found, before)
			}
		}
	}
	before, now := summarize(l.warnings), summarize(found)
	l.warnings = found
	l.mu.Unlock()

	for _, kind := range redisadmin.WarningKinds {
		nodes := 0
		for i := range found {
			if found[i].Kind == kind {
				nodes++
			}
		}
		warned.WithLabelValues(string(kind)).Set(float64(nodes))
	}
	if before == now {
		return
	}
	if now == "" {
		log.Info("Redis is set as it should be")
		l.event(corev1.EventTypeNormal, reasonCleared, "redis is set as it should be")
	} else {
		log.Info("Redis is set otherwise than it should be", "warning", now)
		l.event(corev1.EventTypeWarning, reasonWarned, now)
	}
	l.Changed()
}

// event tells it on the admin Secret, the one object that stands for Redis.
func (l *Link) event(eventType, reason, note string) {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "") + "…"
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: l.SystemNamespace, Name: AdminSecret},
	}
	l.Recorder.Eventf(secret, nil, eventType, reason, actionLooked, "%s", note)
}

// maxNodes bounds the nodes that a warning names.
const maxNodes = 3

// summarize words warnings, those of one kind and value together. It says the same of the same warnings.
func summarize(warnings []redisadmin.Warning) string {
	type subject struct{ setting, value, message string }
	nodes := map[subject][]string{}
	var order []subject
	for i := range warnings {
		w := &warnings[i]
		key := subject{w.Setting, w.Value, w.Message}
		if nodes[key] == nil {
			order = append(order, key)
		}
		nodes[key] = append(nodes[key], w.Node)
	}
	slices.SortFunc(order, func(a, b subject) int { return strings.Compare(a.setting+" "+a.value, b.setting+" "+b.value) })
	var parts []string
	for _, key := range order {
		named := slices.Sorted(slices.Values(nodes[key]))
		if more := len(named) - maxNodes; more > 0 {
			named = append(named[:maxNodes], fmt.Sprintf("%d more", more))
		}
		parts = append(parts, fmt.Sprintf("%s is %s on %s: %s", key.setting, key.value, strings.Join(named, ", "), key.message))
	}
	return strings.Join(parts, "; ")
}
