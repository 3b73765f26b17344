package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// ErrNotPermitted says that the user may not write as an idempotent writer.
var ErrNotPermitted = errors.New("the user may not write as an idempotent writer; " +
	"permit IDEMPOTENT_WRITE on the cluster")

// Health is how a cluster looks to a publisher.
type Health struct {
	// Server is Kafka with its version, as far as the requests tell that the brokers know.
	Server string
	// Host is the host:port of the brokers that the URL names.
	Host string
	// Trouble is why a message could not be published now; nil if a message could. No message is published: a topic
	// would keep it.
	Trouble error
	// Exchanges names the topics that are missing or take no messages, and why.
	Exchanges map[string]error
}

// Examine connects to the cluster as a Publisher does, and looks for topics. Examine fails when no broker answers.
func Examine(ctx context.Context, config Config, topics ...string) (Health, error) {
	config = config.Complete()
	cluster, err := address.ParseKafka(config.URL)
	if err != nil {
		return Health{}, fmt.Errorf("the URL of the broker %w", err)
	}
	producer, err := kafkaconn.NewProducer(kafkaconn.ProducerConfig{
		Config: kafkaconn.Config{
			Address: cluster, Name: config.Name, Dial: config.Dial, TLS: config.TLS, Handshake: config.Handshake,
			AnswerTimeout: config.WriteTimeout,
		},
	})
	if err != nil {
		return Health{}, err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(ctx, config.WriteTimeout)
	defer cancel()
	if err := producer.Reach(ctx); err != nil {
		return Health{}, err
	}
	h := Health{Host: strings.Join(cluster.Hosts, ","), Exchanges: map[string]error{}}
	if h.Server, err = server(ctx, producer); err != nil {
		return Health{}, err
	}
	if _, _, err := producer.Client().ProducerID(ctx); err != nil {
		h.Trouble = fmt.Errorf("no id for an idempotent writer: %w", err)
		if errors.Is(err, kerr.ClusterAuthorizationFailed) {
			h.Trouble = fmt.Errorf("%w: %w", ErrNotPermitted, err)
		}
	}
	if len(topics) == 0 {
		return h, nil
	}
	return h, h.find(ctx, producer, topics)
}

// server asks the first broker that answers for its version.
func server(ctx context.Context, producer *kafkaconn.Producer) (string, error) {
	response, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, producer.Client())
	if err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	return "Kafka " + kversion.FromApiVersionsResponse(response).VersionGuess(), nil
}

// find looks for topics.
func (h *Health) find(ctx context.Context, producer *kafkaconn.Producer, topics []string) error {
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, asked)
	}
	response, err := request.RequestWith(ctx, producer.Client())
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	for i := range response.Topics {
		topic := &response.Topics[i]
		if err := trouble(topic); err != nil && topic.Topic != nil {
			h.Exchanges[*topic.Topic] = err
		}
	}
	return nil
}

// trouble is why a topic takes no messages, or not all of them.
func trouble(topic *kmsg.MetadataResponseTopic) error {
	if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
		return err
	}
	for i := range topic.Partitions {
		partition := &topic.Partitions[i]
		if err := kerr.ErrorForCode(partition.ErrorCode); err != nil || partition.Leader < 0 {
			return fmt.Errorf("partition %d has no leader: %w", partition.Partition, errors.Join(kerr.LeaderNotAvailable, err))
		}
	}
	return nil
}
