module github.com/msghandler/msghandler/consumer

go 1.26.0

require (
	github.com/msghandler/msghandler/broker/rabbitmq v0.1.0
	github.com/msghandler/msghandler/internal/ground v0.1.0
	github.com/rabbitmq/amqp091-go v1.16.0
)
