// A stock client of go-amqp that reads a journal: oncewire-go-amqp-journal URL ADDRESS START COUNT
// START is a word, such as first, or a position. It prints each position with its message.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	url, address := os.Args[1], os.Args[2]
	var start any = os.Args[3]
	if position, err := strconv.ParseUint(os.Args[3], 10, 64); err == nil {
		start = position
	}
	count, _ := strconv.Atoi(os.Args[4])
	limit, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	connection := must(amqp.Dial(limit, url, &amqp.ConnOptions{ContainerID: "go-amqp-journal"}))
	session := must(connection.NewSession(limit, nil))
	receiver := must(session.NewReceiver(limit, address, &amqp.ReceiverOptions{
		Filters: []amqp.LinkFilter{amqp.NewLinkFilter("rabbitmq:stream-offset-spec", 0, start)},
	}))
	for ; count > 0; count-- {
		message := must(receiver.Receive(limit, nil))
		fmt.Println(message.Annotations["x-stream-offset"], body(message))
		if err := receiver.AcceptMessage(limit, message); err != nil {
			panic(err)
		}
	}
	_ = connection.Close()
}

func body(message *amqp.Message) string {
	if text, ok := message.Value.(string); ok {
		return text
	}
	return string(message.GetData())
}

func must[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}
