// A stock client of go-amqp with a selector, as one of a shared subscription: oncewire-go-amqp-selector URL TOPIC COUNT
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
	url, topic := os.Args[1], os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	limit, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	connection := must(amqp.Dial(limit, url, &amqp.ConnOptions{ContainerID: "go-amqp-selector"}))
	session := must(connection.NewSession(limit, nil))
	receiver := must(session.NewReceiver(limit, topic, &amqp.ReceiverOptions{
		Name:               "red",
		SourceCapabilities: []string{"shared"},
		Filters:            []amqp.LinkFilter{amqp.NewSelectorFilter("color = 'red' AND number > 1")},
	}))
	fmt.Println("ready")
	for ; count > 0; count-- {
		message := must(receiver.Receive(limit, nil))
		fmt.Println("chosen", message.ApplicationProperties["number"])
		if err := receiver.AcceptMessage(limit, message); err != nil {
			panic(err)
		}
	}
	_ = connection.Close()
}

func must[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}
