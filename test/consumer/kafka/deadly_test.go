package kafka_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// child, in the environment, makes this test binary a consumer's process. Its value is the URL of the cluster.
const child = "TEST_KAFKA_CONSUMER_CHILD"

// consume is a consumer's process, which the message "deadly" ends, and the message "later" at its second handling. It
// prints the id of each message that it has handled.
func consume(url string) error {
	c, err := kafkaconsumer.New(kafkaconsumer.Config{
		URL: url, Group: "payments", Topics: []string{"orders"}, Create: true, Concurrency: 4,
		Retry: []time.Duration{50 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	failed := false
	return c.Run(context.Background(), consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
		switch {
		case m.ID == "later" && !failed:
			failed = true
			return consumer.Transient(errors.New("no database"))
		case m.ID == "deadly", m.ID == "later":
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case strings.HasPrefix(m.ID, "slow"):
			<-time.After(300 * time.Millisecond) // the deadly message ends this handling of another partition
		}
		fmt.Println(m.ID)
		return nil
	}))
}

// live runs a consumer's process until the process ends or handled wants no more, and takes the process out of the
// group, as the session timeout would. live reports whether the process ended by itself.
func live(t *testing.T, k *fakekafka.Cluster, handled func(id string) (more bool)) (died bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+k.URL("", ""))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	died = true
	for said := bufio.NewScanner(out); said.Scan(); {
		if !handled(said.Text()) {
			died = false
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	expel(t, k, "payments")
	return died
}

// expel takes all members out of a group.
func expel(t *testing.T, k *fakekafka.Cluster, group string) {
	t.Helper()
	described, err := kadm.NewClient(k.Admin).DescribeGroups(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = group
	for _, member := range described[group].Members {
		leaving := kmsg.NewLeaveGroupRequestMember()
		leaving.MemberID = member.MemberID
		request.Members = append(request.Members, leaving)
	}
	if _, err := request.RequestWith(t.Context(), k.Admin); err != nil {
		t.Fatal(err)
	}
}

// A message that ends the process of its consumer is handed to a bounded number of processes. Neither its neighbours in
// the partition nor the slow messages of other partitions, whose handling each process leaves too, become dead letters.
func TestDeadlyMessageIsBuriedAlone(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	at := func(partition int32, id string) *kgo.Record {
		record := withID(id)
		record.Partition = partition
		return record
	}
	produceTo(t, k, at(0, "1"), at(0, "2"), at(0, "deadly"), at(0, "3"), at(0, "4"),
		at(1, "slow 1"), at(1, "slow 2"), at(2, "slow 3"))
	innocent, handled := []string{"1", "2", "3", "4", "slow 1", "slow 2", "slow 3"}, map[string]int{}
	lives := 0
	for lives++; lives < 60; lives++ {
		if !live(t, k, func(id string) bool {
			handled[id]++
			return len(handled) < len(innocent)
		}) {
			break
		}
	}
	if got := slices.Sorted(maps.Keys(handled)); !slices.Equal(got, innocent) {
		t.Errorf("after %d lives the messages %q are handled, want %q", lives, got, innocent)
	}
	t.Logf("%d lives; handled: %v", lives, handled)
	dead := letters(t, k, "payments.dead")
	if len(dead) != 1 || dead[0].header("msghandler-id") != "deadly" ||
		!strings.Contains(dead[0].header("msghandler-dead-reason"), "no process told how its handling ended") {
		t.Errorf("the dead letters are %+v", dead)
	}
}

// begun is what the metadata of the group's offset in partition 0 say; the offset is 0 before the first commit.
func begun(t *testing.T, k *fakekafka.Cluster) (offset int64, metadata string) {
	t.Helper()
	return begunIn(t, k, 0)
}

func begunIn(t *testing.T, k *fakekafka.Cluster, partition int32) (offset int64, metadata string) {
	t.Helper()
	fetched, err := kadm.NewClient(k.Admin).FetchOffsets(t.Context(), "payments")
	if err != nil {
		t.Fatal(err)
	}
	of, _ := fetched.Lookup("orders", partition)
	return of.At, of.Metadata
}

// begin commits the offset 0 of each partition with the count of processes that have told nothing.
func begin(t *testing.T, k *fakekafka.Cluster, times int) {
	t.Helper()
	offsets := kadm.Offsets{}
	for partition := range int32(4) {
		offsets.Add(kadm.Offset{
			Topic: "orders", Partition: partition, LeaderEpoch: -1, Metadata: fmt.Sprintf("msghandler-begun:%d", times),
		})
	}
	if err := kadm.NewClient(k.Admin).CommitAllOffsets(t.Context(), "payments", offsets); err != nil {
		t.Fatal(err)
	}
}

// A message may fail at first, and end its process when it is handled again.
func TestDeadlyRetryIsCounted(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	later, innocent := withID("later"), withID("innocent")
	later.Partition, innocent.Partition = 0, 0
	produceTo(t, k, later, innocent)
	begin(t, k, 18)
	for died := 0; live(t, k, func(string) bool { return false }); died++ {
		if died == 4 {
			_, metadata := begun(t, k)
			t.Fatalf("%d more processes have ended, and the group's offset says %q", died+1, metadata)
		}
	}
	dead := letters(t, k, "payments.dead")
	if len(dead) != 1 || dead[0].header("msghandler-id") != "later" {
		t.Errorf("the dead letters are %+v", dead)
	}
}

// While the group takes no commit, a careful consumer tries again several times a second.
func TestCarefulCommitsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	record := withID("1")
	record.Partition = 0
	produceTo(t, k, record)
	begin(t, k, 5)
	refused := refuse(k, kmsg.OffsetCommit, kerr.GroupAuthorizationFailed)
	config, log := quick(t, k), &servers.Log{}
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	b := &consumertest.Calls{}
	r := start(t, config, b.Handle)
	b.AwaitIDs(t, 1)
	servers.Eventually(t, time.Minute, "commits are refused", func() bool { return refused.Hits() > 8 })
	refused.Remove()
	servers.Eventually(t, time.Minute, "the message is committed", func() bool {
		offset, _ := begun(t, k)
		return offset == 1
	})
	r.finish()
	if n := strings.Count(log.String(), "offsets not committed"); n > 2 { // one is of the regular commits
		t.Errorf("%d lines about commits:\n%s", n, log)
	}
}

// A handler that tells how it ended has not ended its process, whether it failed or its consumer stopped.
func TestFailuresCountAsNoCrashes(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	record := withID("1")
	record.Partition = 0
	produceTo(t, k, record)
	begin(t, k, 20)
	config := quick(t, k)
	config.Delays, config.RetryLimit = nil, 0
	failed := make(chan struct{}, 100)
	r := start(t, config, func(context.Context, *consumer.Message) error {
		if offset, metadata := begun(t, k); offset != 0 || metadata != "msghandler-begun:21" {
			t.Errorf("while its message is handled the group is at %d with %q", offset, metadata)
		}
		failed <- struct{}{}
		return errors.New("no database")
	})
	<-failed
	<-failed
	servers.Eventually(t, 20*time.Second, "the process that told its failure does not count", func() bool {
		offset, metadata := begun(t, k)
		return offset == 0 && metadata == "msghandler-begun:20"
	})
	r.finish()
	if offset, metadata := begun(t, k); offset != 0 || strings.Contains(metadata, "begun") {
		t.Errorf("after a stop the group is at %d with %q", offset, metadata)
	}
	ctx, end := context.WithCancel(t.Context())
	r = start(t, config, func(work context.Context, _ *consumer.Message) error {
		end()
		<-work.Done()
		return work.Err()
	})
	<-ctx.Done()
	if offset, metadata := begun(t, k); offset != 0 || metadata != "msghandler-begun:1" {
		t.Errorf("while its message is handled the group is at %d with %q", offset, metadata)
	}
	_ = r.end() // its handler takes too long
	if offset, metadata := begun(t, k); offset != 0 || strings.Contains(metadata, "begun") {
		t.Errorf("after a stop the group is at %d with %q", offset, metadata)
	}
	b := &consumertest.Calls{}
	r = start(t, config, b.Handle)
	b.AwaitIDs(t, 1)
	r.finish()
	if offset, metadata := begun(t, k); offset != 1 || strings.Contains(metadata, "begun") {
		t.Errorf("after its message the group is at %d with %q", offset, metadata)
	}
	if dead := letters(t, k, "payments.dead"); len(dead) > 0 {
		t.Errorf("the dead letters are %+v", dead)
	}
}

// produceTo writes records into the partitions that they name.
func produceTo(t *testing.T, k *fakekafka.Cluster, records ...*kgo.Record) {
	t.Helper()
	writer, err := kgo.NewClient(kgo.SeedBrokers(k.Hosts...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
