package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// AddMaster starts one more node and introduces it. It serves no slot: see SlotMove. Nodes grows by it, so nobody may use that meanwhile.
func (c *Cluster) AddMaster(ctx context.Context) (*Node, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	c.started++
	node := newNode(c, filepath.Join(c.dir, strconv.Itoa(nodes+c.started)), ports[0], ports[1])
	if err := os.Mkdir(node.dir, 0o700); err != nil {
		return nil, err
	}
	if err := node.configure(); err != nil {
		return nil, fmt.Errorf("configure node %s: %w", node.Addr(), err)
	}
	if err := node.spawn(); err != nil {
		return nil, fmt.Errorf("start node %s: %w", node.Addr(), err)
	}
	others := slices.Clone(c.Nodes)
	c.Nodes = append(c.Nodes, node)
	if err := node.waitAnswers(ctx); err != nil {
		return nil, err
	}
	if node.id, err = node.client.ClusterMyID(ctx).Result(); err != nil {
		return nil, fmt.Errorf("ask node %s for its id: %w", node.Addr(), err)
	}
	for _, other := range others {
		if err := other.client.Do(ctx, "CLUSTER", "MEET", host, node.port, node.busPort).Err(); err != nil {
			return nil, fmt.Errorf("introduce node %s to %s: %w", node.Addr(), other.Addr(), err)
		}
	}
	return node, c.WaitHealthy(ctx)
}

// Remove ends a node that serves no slot, and makes all others forget it.
func (c *Cluster) Remove(ctx context.Context, node *Node) error {
	node.Stop()
	c.Nodes = slices.DeleteFunc(slices.Clone(c.Nodes), func(other *Node) bool { return other == node })
	for _, other := range c.Nodes {
		if err := other.client.ClusterForget(ctx, node.id).Err(); err != nil {
			return fmt.Errorf("make node %s forget %s: %w", other.Addr(), node.Addr(), err)
		}
	}
	if err := node.client.Close(); err != nil {
		return err
	}
	return c.WaitHealthy(ctx)
}

// MoveAddr starts a node anew on other ports, with its id, as a pod that comes back with another address. The others learn the address from it.
// Needs Options.Persist, or the node comes back empty.
func (n *Node) MoveAddr(ctx context.Context) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	n.Stop()
	if err := n.client.Close(); err != nil {
		return err
	}
	n.port, n.busPort = ports[0], ports[1]
	n.client = n.newClient()
	if err := n.configure(); err != nil {
		return fmt.Errorf("configure node %s: %w", n.Addr(), err)
	}
	return n.Restart(ctx)
}

// SlotMove is a slot on its way from one master to another. Between Begin and Finish its keys are asked for at both ends.
type SlotMove struct {
	Slot     int
	From, To *Node
}

// Begin opens the slot at both ends.
func (m SlotMove) Begin(ctx context.Context) error {
	if err := m.To.client.Do(ctx, "CLUSTER", "SETSLOT", m.Slot, "IMPORTING", m.From.id).Err(); err != nil {
		return fmt.Errorf("import slot %d: %w", m.Slot, err)
	}
	if err := m.From.client.Do(ctx, "CLUSTER", "SETSLOT", m.Slot, "MIGRATING", m.To.id).Err(); err != nil {
		return fmt.Errorf("migrate slot %d: %w", m.Slot, err)
	}
	return nil
}

// Finish moves the slot's keys, and then the slot.
func (m SlotMove) Finish(ctx context.Context) error {
	const batch, timeoutMS = 100, 1000
	for {
		keys, err := m.From.client.ClusterGetKeysInSlot(ctx, m.Slot, batch).Result()
		if err != nil {
			return fmt.Errorf("keys of slot %d: %w", m.Slot, err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, m.To.port, "", 0, timeoutMS}
		if password := m.From.cluster.options.Password; password != "" {
			args = append(args, "AUTH", password)
		}
		args = append(args, "KEYS")
		for _, key := range keys {
			args = append(args, key)
		}
		if err := m.From.client.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("move keys of slot %d: %w", m.Slot, err)
		}
	}
	for _, node := range []*Node{m.To, m.From} {
		if err := node.client.Do(ctx, "CLUSTER", "SETSLOT", m.Slot, "NODE", m.To.id).Err(); err != nil {
			return fmt.Errorf("hand slot %d over: %w", m.Slot, err)
		}
	}
	return nil
}
