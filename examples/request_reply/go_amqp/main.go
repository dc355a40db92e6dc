// Asks and answers with go-amqp. The router makes an address for the answers; one sender without an address is for the
// answers to everybody.
//
//	go mod init requests && go get github.com/Azure/go-amqp@v1.7.0
//	go run . responder amqp://127.0.0.1:5672,amqp://127.0.0.1:5673
//	go run . requester amqp://127.0.0.1:5672,amqp://127.0.0.1:5673 100
//
// go-amqp does not connect again by itself. After a crash of its router the requester has another address, and asks
// again what has no answer: the responder may get it twice.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	role, urls := os.Args[1], strings.Split(os.Args[2], ",")
	number, count := 0, 0
	if role == "requester" {
		count, _ = strconv.Atoi(os.Args[3])
	}
	for attempt := 0; ; attempt++ {
		err := withSession(urls[attempt%len(urls)], func(ctx context.Context, session *amqp.Session) error {
			if role == "responder" {
				return respond(ctx, session)
			}
			return request(ctx, session, &number, count)
		})
		if err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// withSession connects, and does the work until it has ended or the connection has.
func withSession(url string, work func(context.Context, *amqp.Session) error) error {
	ctx := context.Background()
	limit, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	connection, err := amqp.Dial(limit, url, &amqp.ConnOptions{IdleTimeout: 4 * time.Second})
	if err != nil {
		return err
	}
	defer connection.Close()
	session, err := connection.NewSession(limit, nil)
	if err != nil {
		return err
	}
	return work(ctx, session)
}

func request(ctx context.Context, session *amqp.Session, number *int, count int) error {
	questions, err := session.NewSender(ctx, "doubles", nil)
	if err != nil {
		return err
	}
	answers, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return err
	}
	address := answers.Address()
	asking, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	for *number < count {
		id := strconv.Itoa(*number)
		question := &amqp.Message{
			Value:      id,
			Properties: &amqp.MessageProperties{ReplyTo: &address, CorrelationID: id},
		}
		// The outcome of the question may come behind its answer, which is awaited meanwhile.
		go func() {
			if err := ask(asking, questions, question); err != nil {
				failed(err)
			}
		}()
		for answered := false; !answered; {
			answer, err := answers.Receive(asking, nil)
			if err != nil {
				return err
			}
			if err := answers.AcceptMessage(asking, answer); err != nil {
				return err
			}
			// Another id is that of a question that was asked again.
			if answered = answer.Properties.CorrelationID == id; answered {
				fmt.Printf("%s: %s\n", id, text(answer))
			}
		}
		*number++
	}
	return nil
}

// ask sends a question until somebody has taken it.
func ask(ctx context.Context, questions *amqp.Sender, question *amqp.Message) error {
	for {
		receipt, err := questions.SendWithReceipt(ctx, question, nil)
		if err != nil {
			return err
		}
		outcome, err := receipt.Wait(ctx)
		if err != nil {
			return err
		}
		switch outcome := outcome.(type) {
		case *amqp.StateReleased: // nobody answers yet
			time.Sleep(200 * time.Millisecond)
		case *amqp.StateRejected:
			fmt.Println("not sent:", outcome.Error)
			os.Exit(1)
		default:
			return nil
		}
	}
}

func respond(ctx context.Context, session *amqp.Session) error {
	questions, err := session.NewReceiver(ctx, "doubles", nil)
	if err != nil {
		return err
	}
	answers, err := session.NewSender(ctx, "", nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		question, err := questions.Receive(ctx, nil)
		if err != nil {
			return err
		}
		asked, _ := strconv.Atoi(text(question))
		answer := &amqp.Message{
			Value: strconv.Itoa(2 * asked),
			Properties: &amqp.MessageProperties{
				To:            question.Properties.ReplyTo,
				CorrelationID: question.Properties.CorrelationID,
			},
		}
		// Its outcome comes when the requester has it, who waits for that of the question: nobody waits for it here.
		if _, err := answers.SendWithReceipt(ctx, answer, nil); err != nil {
			return err
		}
		if err := questions.AcceptMessage(ctx, question); err != nil {
			return err
		}
	}
}

// text is the body, as a value or as data.
func text(message *amqp.Message) string {
	if value, ok := message.Value.(string); ok {
		return value
	}
	return string(message.GetData())
}
