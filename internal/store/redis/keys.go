package redis

import (
	"hash/fnv"
	"regexp"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Every key of a message begins with PREFIX:{SHARD}: and the braces make all keys of a shard live on one cluster node.
// SHARD is the shard's tag; layout.go has them. The parts that follow are listed here. A producer's name holds no
// colon, so no two keys can be mixed up:
//
//	PREFIX:{SHARD}:producers                  set of the producers with kept messages
//	PREFIX:{SHARD}:PRODUCER:STATE:cells       hash of the cells of paged messages, by id; pending and sendable only
//	PREFIX:{SHARD}:PRODUCER:page:NUMBER       list of the ids of messages that were created in a short time
//	PREFIX:{SHARD}:PRODUCER:pages             sorted set of page numbers by due time
//	PREFIX:{SHARD}:PRODUCER:STATE             sorted set of ids by due time; this is the state of an indexed message
//	PREFIX:{SHARD}:PRODUCER:STATE:created     sorted set of the same ids by creation time
//	PREFIX:{SHARD}:PRODUCER:leases            hash of the tokens of claimed messages, by id
//	PREFIX:{SHARD}:PRODUCER:verdicts          hash of when committed verdicts were stored, by id
//	PREFIX:{SHARD}:PRODUCER:keys              hash of the ordering keys of the messages in chains, by id
//	PREFIX:{SHARD}:PRODUCER:chain:KEY         sorted set of the ids in the chain of an ordering key, by place
//	PREFIX:{SHARD}:PRODUCER:awaited           hash of the place up to which a chain's open messages are awaited, by key
//	PREFIX:{SHARD}:PRODUCER:m:ID              the record, or the trace of a finished one; or the pointer to the shard of
//	                                          the message's chain
//	PREFIX:{SHARD}:PRODUCER:x:ID              hash of what else there is to say
//	PREFIX:{SHARD}:parked@BROKER              sorted set of PRODUCER/ID by due time: SENDABLE messages that wait for a
//	                                          broker, "" for the default one, while others are claimed
//	PREFIX:{SHARD}:parked_for                 set of the brokers with such messages
//	PREFIX:{SHARD}:wait                       empty, for a second: what replicas are asked about (redis.min_replicas)
//	PREFIX:{SHARD}:pulse                      hash: generation, and a count for each coordinator, which reveal a loss
//	PREFIX:{SHARD}:suspect                    up to when messages were created that a loss may have brought back
//	PREFIX:{SHARD}:coordinators               hash: the report of each coordinator; in the first shard only
//	PREFIX:{SHARD}:archive                    stream of finished messages, bounded; see archive.go
//	PREFIX:{SHARD}:archive_full               while Redis needs its memory for messages
//	PREFIX:{SHARD}:archive_dropped            how many finished messages the archive did not take
//	PREFIX:{SHARD}:chart@STEP:NUMBER          hash: the counts of a bucket of a chart; in the first shard only
//	PREFIX:attending:PRODUCER                 sorted set of the mailboxes of coordinators where the producer attends, by
//	                                          until when; and "last", by 0
//	PREFIX:audit:STREAM                       a stream of audit records for each right that makes them, bounded
//	PREFIX:problems                           a stream of ended problems of coordinators, bounded
//	PREFIX:logout:NAME                        when a person last logged out of the console
//	PREFIX:meta                               hash: layout, shards and the ID of the installation
//
// Letters between coordinators go through the channels PREFIX:post:MAILBOX.
const (
	producersKey      = "producers"
	createdSuffix     = ":created"
	cellsSuffix       = ":cells"
	pagesKey          = "pages"
	pagePrefix        = "page:"
	leasesKey         = "leases"
	verdictsKey       = "verdicts"
	keysKey           = "keys"
	chainPrefix       = "chain:"
	awaitedKey        = "awaited"
	recordPrefix      = "m:"
	notesPrefix       = "x:"
	metaKey           = "meta"
	layoutField       = "layout"
	shardsField       = "shards"
	installationField = "installation"
	pulseName         = "pulse"
	suspectName       = "suspect"
	jumpedField       = "jumped"
	clockField        = "clock"
	coordinatorsName  = "coordinators"
	chartPrefix       = "chart@" // no producer's name has an @
	parkedName        = "parked@"
	parkedForName     = "parked_for"
	archiveName       = "archive"
	archiveFullName   = "archive_full"
	droppedName       = "archive_dropped"
)

// parkTime is how far claim.lua moves the due time of a message whose broker takes no messages now. A claim for the
// broker brings the message back before that.
const parkTime = 10 * time.Minute

// Times further away than these are the work of a clock that jumped: the longest legal delay is 30 days, and no lease
// is worth more than an hour.
const (
	maxDue   = 31 * 24 * time.Hour
	maxLease = time.Hour
)

// behind is the due time of a committed message that stands behind another one of its chain. The number is the largest
// that every server writes with all its digits.
const behind = 1<<52 - 1

// clockSlack is by how much Redis's clock may step without any notice: the scripts allow for it in each due time that
// they call impossible. It is longer than a call takes that succeeds, so a slow call looks like no step.
const clockSlack = 20 * time.Second

// A page has the ids of messages that were created within pageSpan. What is left of it is indexed when the first of
// them is due, and no later than pageLife after it was begun.
const (
	pageSpan = 250 * time.Millisecond
	pageLife = 5 * time.Second
)

// legalPrefix keeps braces, which would move the hash tag, and glob characters, which would make the sweeper look at
// foreign keys, out of key names.
var legalPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,100}$`)

// keys names the keys of one store.
type keys struct {
	prefix string
	// shards holds PREFIX:{SHARD}: for each shard.
	shards []string
}

func newKeys(prefix string, l layout) keys {
	k := keys{prefix: prefix}
	for _, tag := range l.tags() {
		k.shards = append(k.shards, prefix+":{"+tag+"}:")
	}
	return k
}

// metaOf is the key of the data's layout.
func metaOf(prefix string) string { return prefix + ":" + metaKey }

// attendingKey is the key of a producer that attends. The key is outside of the shards: no script reads it with others.
func attendingKey(prefix, producer string) string { return prefix + ":attending:" + producer }

// auditKey is the key of a stream of audit records, outside of the shards like attendingKey.
func auditKey(prefix string, stream audit.Stream) string { return prefix + ":audit:" + string(stream) }

// problemsKey is the key of the record of ended problems, outside of the shards like attendingKey.
func problemsKey(prefix string) string { return prefix + ":problems" }

// logoutKey is the key of a person's last logout, outside of the shards like attendingKey.
func logoutKey(prefix, who string) string { return prefix + ":logout:" + who }

// postChannel is the channel of a mailbox.
func postChannel(prefix, mailbox string) string { return prefix + ":post:" + mailbox }

func waitKey(shard string) string { return shard + "wait" }

func suspectKey(shard string) string { return shard + suspectName }

// pattern matches every key of a message and no foreign key, as far as a glob can.
func (k keys) pattern() string { return k.prefix + ":{*" }

// shardOf is the shard of a message without an ordering key, and of the pointer to a message with one.
func (k keys) shardOf(name halfmsg.Name) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name.Producer))
	_, _ = h.Write([]byte{'/'})
	_, _ = h.Write([]byte(name.ID))
	return int(h.Sum32() % uint32(len(k.shards))) //nolint:gosec // shards are few
}

func (k keys) record(name halfmsg.Name) string {
	return k.shards[k.shardOf(name)] + name.Producer + ":" + recordPrefix + name.ID
}

// kind is the kind of a key.
type kind uint8

const (
	foreignKey kind = iota
	producerSet
	messageKey // a record or notes
	dueIndex
	createdIndex
	idHash // leases, verdicts, cells or ordering keys
	chainSet
	pageList
)

// ownKey is a parsed key of this layout.
type ownKey struct {
	key      string
	kind     kind
	shard    string // PREFIX:{SHARD}:
	producer string
	id       string // of a messageKey; of a pageList the number, of a chainSet the ordering key
}

// parse reads a key of the layout above; any other key is foreignKey.
func (k keys) parse(key string) ownKey {
	end := strings.Index(key, "}:")
	if !strings.HasPrefix(key, k.prefix+":{") || end < 0 {
		return ownKey{}
	}
	own := ownKey{key: key, shard: key[:end+2]}
	rest := key[end+2:]
	if rest == producersKey {
		own.kind = producerSet
		return own
	}
	var part string
	var found bool
	if own.producer, part, found = strings.Cut(rest, ":"); !found {
		return ownKey{}
	}
	own.kind, own.id = parsePart(part)
	return own
}

// parsePart reads the part behind the producer's name.
func parsePart(part string) (kind, string) {
	for _, prefix := range []string{recordPrefix, notesPrefix} {
		if id, found := strings.CutPrefix(part, prefix); found {
			return messageKey, id
		}
	}
	if number, found := strings.CutPrefix(part, pagePrefix); found {
		return pageList, number
	}
	if key, found := strings.CutPrefix(part, chainPrefix); found {
		return chainSet, key
	}
	if part == leasesKey || part == verdictsKey || part == keysKey || strings.HasSuffix(part, cellsSuffix) {
		return idHash, ""
	}
	state, created := strings.CutSuffix(part, createdSuffix)
	for _, kept := range halfmsg.Unfinished() {
		if state == kept.String() {
			if created {
				return createdIndex, ""
			}
			return dueIndex, ""
		}
	}
	return foreignKey, ""
}

// The scripts speak of states in codes: 1, 2, ... for the kept ones by precedence, then the final ones, 0 for none.
var (
	stateOf = append(append([]halfmsg.State{halfmsg.None}, halfmsg.Unfinished()...), halfmsg.Done, halfmsg.RolledBack)
	codeOf  = func() map[halfmsg.State]int {
		codes := make(map[halfmsg.State]int, len(stateOf))
		for code, state := range stateOf {
			codes[state] = code
		}
		return codes
	}()
)
