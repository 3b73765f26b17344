module github.com/msghandler/msghandler/consumer/kafka

go 1.26.0

require (
	github.com/msghandler/msghandler/consumer v0.1.0
	github.com/msghandler/msghandler/internal/ground v0.1.0
	github.com/msghandler/msghandler/internal/kafkaconn v0.1.0
	github.com/twmb/franz-go v1.22.2
	github.com/twmb/franz-go/pkg/kadm v1.18.0
	github.com/twmb/franz-go/pkg/kmsg v1.15.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/msghandler/msghandler/internal/amqpconn v0.1.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/rabbitmq/amqp091-go v1.16.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
)

replace (
	github.com/msghandler/msghandler/consumer v0.1.0 => ..
	github.com/msghandler/msghandler/internal/amqpconn v0.1.0 => ../../internal/amqpconn
	github.com/msghandler/msghandler/internal/ground v0.1.0 => ../../internal/ground
	github.com/msghandler/msghandler/internal/kafkaconn v0.1.0 => ../../internal/kafkaconn
)
