// Carries every record of one topic to another exactly once, with the sessions of franz-go: a few
// members of a group, of which some leave and come again, each with a transactional id of its own.
//
// Goes on until its input is closed. Prints "ended" and how many transactions were committed and
// aborted, or "failed" and what a client was told that it cannot go on after. With "restart" such a
// member is begun anew, as a supervisor would: brokers that are killed may have it fenced.
//
// Arguments: bootstrap servers, topic that is read, topic that is written, group, balancer (range,
// sticky or cooperative-sticky), version of transactions (1 or 2), "restart" or "once".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	members     = 3
	fewRecords  = 5
	stayPolls   = 8
	patience    = 2 * time.Second
	timeoutOfTx = 20 * time.Second
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// Version 2 of transactions came with Kafka 4.0.
var versions = map[string]*kversion.Versions{"1": kversion.V3_8_0(), "2": kversion.Stable()}

type chain struct {
	bootstrap, source, target, group string
	balancer                         kgo.GroupBalancer
	versions                         *kversion.Versions
	restarts                         bool
	committed, aborted               atomic.Int64
}

func main() {
	balancer, version := balancers[os.Args[5]], versions[os.Args[6]]
	if balancer == nil || version == nil {
		fmt.Println("failed to understand", os.Args[1:])
		os.Exit(2)
	}
	c := &chain{
		bootstrap: os.Args[1], source: os.Args[2], target: os.Args[3], group: os.Args[4],
		balancer: balancer, versions: version, restarts: os.Args[7] == "restart",
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	failures := make(chan error, members)
	for number := 0; number < members; number++ {
		go func() { failures <- c.member(ctx, number) }()
	}
	for number := 0; number < members; number++ {
		if err := <-failures; err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	fmt.Println("ended", c.committed.Load(), c.aborted.Load())
}

// member is the life of one: all but the first leave now and then, so that the group is balanced
// anew in the middle of transactions.
func (c *chain) member(ctx context.Context, number int) error {
	for ctx.Err() == nil {
		polls := stayPolls * (number + 1)
		if number == 0 {
			polls = -1
		}
		if err := c.session(ctx, number, polls); err != nil && ctx.Err() == nil {
			fmt.Println("member", number, err)
			if !c.restarts {
				return err
			}
		}
	}
	return nil
}

func (c *chain) session(ctx context.Context, number, polls int) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(c.bootstrap, ",")...),
		kgo.TransactionalID(fmt.Sprintf("%s-%d", c.group, number)),
		kgo.TransactionTimeout(timeoutOfTx),
		kgo.ConsumerGroup(c.group),
		kgo.ConsumeTopics(c.source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(c.balancer),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(c.target),
		kgo.MaxVersions(c.versions),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for ; polls != 0 && ctx.Err() == nil; polls-- {
		if err := c.transaction(ctx, session); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) transaction(ctx context.Context, session *kgo.GroupTransactSession) error {
	polling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fetches := session.PollRecords(polling, fewRecords)
	for _, each := range fetches.Errors() {
		if polling.Err() == nil {
			return fmt.Errorf("poll: %w", each.Err)
		}
	}
	records := fetches.Records()
	if len(records) == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	first := kgo.AbortingFirstErrPromise(session.Client())
	for _, each := range records {
		session.Produce(ctx, &kgo.Record{Key: each.Key, Value: each.Value}, first.Promise())
	}
	producing := first.Err()
	committed, err := session.End(ctx, kgo.TransactionEndTry(producing == nil))
	if err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if producing != nil && !errors.Is(producing, kgo.ErrAborting) {
		return fmt.Errorf("produce: %w", producing)
	}
	if committed {
		c.committed.Add(1)
	} else {
		c.aborted.Add(1)
	}
	return nil
}
