package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots = 16384
	// failoverGrace is when to ask for a failover again: Redis gives one up after 5 s, without a word.
	failoverGrace = 6 * time.Second
)

// SlotRange holds the slots from First to Last, both included.
type SlotRange struct{ First, Last int }

// form joins the nodes to a cluster. Every pair is introduced, so that nobody has to wait for gossip.
func (c *Cluster) form(ctx context.Context) error {
	for i, node := range c.Nodes {
		if err := node.waitAnswers(ctx); err != nil {
			return err
		}
		var err error
		if node.id, err = node.client.ClusterMyID(ctx).Result(); err != nil {
			return fmt.Errorf("ask node %s for its id: %w", node.Addr(), err)
		}
		// Distinct epochs from the start spare the cluster the resolution of their collision.
		if err := node.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("set the epoch of node %s: %w", node.Addr(), err)
		}
		if i >= masters {
			continue
		}
		if err := node.client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			return fmt.Errorf("give slots to node %s: %w", node.Addr(), err)
		}
	}
	for i, node := range c.Nodes {
		for _, other := range c.Nodes[i+1:] {
			if err := node.client.Do(ctx, "CLUSTER", "MEET", host, other.port, other.busPort).Err(); err != nil {
				return fmt.Errorf("introduce node %s to %s: %w", other.Addr(), node.Addr(), err)
			}
		}
	}
	for i, node := range c.Nodes[masters:] {
		master := c.Nodes[i]
		err := c.until(ctx, func() error { return node.client.ClusterReplicate(ctx, master.id).Err() })
		if err != nil {
			return fmt.Errorf("make node %s a replica of %s: %w", node.Addr(), master.Addr(), err)
		}
	}
	return nil
}

// WaitHealthy waits until every running node says cluster_state:ok, reaches every other running node and sees all slots
// in their hands, and every replica has an open link to its master. So after the loss of a master it waits for the
// promotion, and after the loss of a master and its replica for ever: bound it by the context.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	for _, node := range c.Nodes {
		if !node.Running() {
			continue
		}
		if err := c.until(ctx, func() error { return c.healthy(ctx, node) }); err != nil {
			return fmt.Errorf("wait for node %s: %w", node.Addr(), err)
		}
	}
	// The client's own picture must be as new as the cluster's.
	c.client.ReloadState(ctx)
	return nil
}

func (c *Cluster) healthy(ctx context.Context, node *Node) error {
	info, err := node.client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return errors.New("its cluster state is not ok")
	}
	seen, err := node.view(ctx)
	if err != nil {
		return err
	}
	served := 0
	for _, other := range c.Nodes {
		if !other.Running() {
			continue
		}
		entry, ok := seen[other.id]
		if !ok || !entry.reachable() {
			return fmt.Errorf("it does not reach node %s yet", other.Addr())
		}
		for _, held := range entry.slots {
			served += held.Last - held.First + 1
		}
	}
	// A node that died a moment ago still holds its slots, in everybody's eyes.
	if served != slots {
		return fmt.Errorf("it sees %d of %d slots served by running nodes", served, slots)
	}
	replication, err := node.client.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if strings.Contains(replication, "role:slave") && !strings.Contains(replication, "master_link_status:up") {
		return errors.New("it has not synced with its master yet")
	}
	return nil
}

// until repeats try until it succeeds or the context ends, and then tells the last error.
func (c *Cluster) until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if !sleep(ctx, poll) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Masters are the nodes that serve slots, as the first running node that answers sees it.
func (c *Cluster) Masters(ctx context.Context) ([]*Node, error) {
	var masters []*Node
	err := c.view(ctx, func(node *Node, entry nodeEntry) {
		if len(entry.slots) > 0 {
			masters = append(masters, node)
		}
	})
	return masters, err
}

// MasterOf is the master that serves the key's slot.
func (c *Cluster) MasterOf(ctx context.Context, key string) (*Node, error) {
	slot, err := c.client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return nil, fmt.Errorf("slot of key %q: %w", key, err)
	}
	var owner *Node
	err = c.view(ctx, func(node *Node, entry nodeEntry) {
		for _, held := range entry.slots {
			if held.First <= int(slot) && int(slot) <= held.Last {
				owner = node
			}
		}
	})
	if err == nil && owner == nil {
		err = fmt.Errorf("no node serves slot %d of key %q", slot, key)
	}
	return owner, err
}

// ReplicasOf are the nodes that replicate the given master.
func (c *Cluster) ReplicasOf(ctx context.Context, master *Node) ([]*Node, error) {
	var replicas []*Node
	err := c.view(ctx, func(node *Node, entry nodeEntry) {
		if entry.master == master.id {
			replicas = append(replicas, node)
		}
	})
	return replicas, err
}

// view calls visit for each node with what the first node that answers says about it.
func (c *Cluster) view(ctx context.Context, visit func(*Node, nodeEntry)) error {
	var problems []error
	for _, node := range c.Nodes {
		if !node.Running() {
			continue
		}
		seen, err := node.view(ctx)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, other := range c.Nodes {
			if entry, ok := seen[other.id]; ok {
				visit(other, entry)
			}
		}
		return nil
	}
	return fmt.Errorf("no node tells the topology: %w", errors.Join(problems...))
}

// IsMaster tells whether the node takes writes, by its own word.
func (n *Node) IsMaster(ctx context.Context) (bool, error) {
	seen, err := n.view(ctx)
	if err != nil {
		return false, err
	}
	return seen[n.id].master == "-", nil
}

// Slots are the slots that the node serves, by its own word.
func (n *Node) Slots(ctx context.Context) ([]SlotRange, error) {
	seen, err := n.view(ctx)
	return seen[n.id].slots, err
}

// nodeEntry is a line of CLUSTER NODES.
type nodeEntry struct {
	flags, master, link string
	slots               []SlotRange
}

func (e nodeEntry) reachable() bool {
	return !strings.Contains(e.flags, "fail") && !strings.Contains(e.flags, "handshake") &&
		(e.link == "connected" || strings.Contains(e.flags, "myself"))
}

// view is the cluster as the node sees it, by node id.
func (n *Node) view(ctx context.Context) (map[string]nodeEntry, error) {
	text, err := n.client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("ask node %s for the topology: %w", n.Addr(), err)
	}
	entries := map[string]nodeEntry{}
	for line := range strings.Lines(text) {
		// id address flags master ping-sent pong-received epoch link-state slot...
		const fixed = 8
		fields := strings.Fields(line)
		if len(fields) < fixed {
			return nil, fmt.Errorf("node %s: CLUSTER NODES has a line of %d fields, not %d or more", n.Addr(), len(fields), fixed)
		}
		entry := nodeEntry{flags: fields[2], master: fields[3], link: fields[7]}
		for _, field := range fields[fixed:] {
			if slots, ok := parseSlots(field); ok {
				entry.slots = append(entry.slots, slots)
			}
		}
		entries[fields[0]] = entry
	}
	return entries, nil
}

// parseSlots reads "5" or "5-9"; what else stands in that place ("[5->-id]") is a migration.
func parseSlots(field string) (SlotRange, bool) {
	first, last, isRange := strings.Cut(field, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.Atoi(first)
	if err != nil {
		return SlotRange{}, false
	}
	high, err := strconv.Atoi(last)
	return SlotRange{First: low, Last: high}, err == nil
}

// Failover promotes a replica of the node that serves the key, without loss (CLUSTER FAILOVER), waits until it is done,
// and returns the new master.
func (c *Cluster) Failover(ctx context.Context, key string) (*Node, error) {
	old, err := c.MasterOf(ctx, key)
	if err != nil {
		return nil, err
	}
	replicas, err := c.ReplicasOf(ctx, old)
	if err != nil {
		return nil, err
	}
	if len(replicas) == 0 {
		return nil, fmt.Errorf("node %s has no replica to promote", old.Addr())
	}
	promoted := replicas[0]
	var asked time.Time
	err = c.until(ctx, func() error {
		isMaster, err := promoted.IsMaster(ctx)
		if err != nil || isMaster {
			return err
		}
		if time.Since(asked) > failoverGrace {
			asked = time.Now()
			if err := promoted.client.ClusterFailover(ctx).Err(); err != nil {
				return err
			}
		}
		return errors.New("still a replica")
	})
	if err != nil {
		return nil, fmt.Errorf("promote node %s: %w", promoted.Addr(), err)
	}
	return promoted, nil
}

// ForEachMaster calls visit with a client of each master, one after the other.
func (c *Cluster) ForEachMaster(ctx context.Context, visit func(context.Context, *redis.Client) error) error {
	masters, err := c.Masters(ctx)
	if err != nil {
		return err
	}
	for _, master := range masters {
		if err := visit(ctx, master.client); err != nil {
			return fmt.Errorf("node %s: %w", master.Addr(), err)
		}
	}
	return nil
}
