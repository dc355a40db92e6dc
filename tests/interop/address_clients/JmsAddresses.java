// Addresses with Qpid JMS: what a team brings that knows queues, topics, replies and client identifiers of JMS.
//
//     java -cp JARS JmsAddresses.java SCENARIO URL URL
//
// Prints `ok` at the end, or what went wrong.
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.qpid.jms.JmsConnectionFactory;

public class JmsAddresses {
    static final long WAIT_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        String near = arguments[1], far = arguments[2];
        switch (arguments[0]) {
            case "request-reply" -> { replies(near, far, false); replies(near, far, true); }
            case "unsubscribe" -> unsubscribe(near, far);
            case "client-id" -> clientId(near);
            case "shared" -> { shared(near, far, true); shared(near, far, false); }
            case "queue" -> queue(near);
            case "failover" -> failover(near);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("ok");
    }

    static Connection connected(String url, String clientId) throws JMSException {
        Connection connection = new JmsConnectionFactory(url).createConnection();
        if (clientId != null) connection.setClientID(clientId);
        connection.start();
        return connection;
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    // A requester at one router; a responder at the other sends to whatever JMSReplyTo says. A send waits until its message
    // is processed, and the request is processed when its listener returns: so the reply does not wait (NON_PERSISTENT).
    static void replies(String near, String far, boolean isTopic) throws Exception {
        try (Connection client = connected(near, null); Connection server = connected(far, null)) {
            Session serving = server.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer anywhere = serving.createProducer(null);
            anywhere.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            serving.createConsumer(serving.createTopic("requests")).setMessageListener(request -> {
                try {
                    TextMessage reply = serving.createTextMessage("reply to " + request.getBody(String.class));
                    reply.setJMSCorrelationID(request.getJMSCorrelationID());
                    anywhere.send(request.getJMSReplyTo(), reply);
                } catch (JMSException error) {
                    error.printStackTrace();
                }
            });
            Session asking = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Destination inbox = isTopic ? asking.createTemporaryTopic() : asking.createTemporaryQueue();
            MessageConsumer replies = asking.createConsumer(inbox);
            MessageProducer producer = asking.createProducer(asking.createTopic("requests"));
            for (int number = 0; number < 20; number++) {
                TextMessage request = asking.createTextMessage("" + number);
                request.setJMSReplyTo(inbox);
                request.setJMSCorrelationID("" + number);
                producer.send(request);
                Message got = replies.receive(WAIT_MS);
                check(got != null, "no reply came");
                check(got.getBody(String.class).equals("reply to " + number), "another reply came");
                check(got.getJMSCorrelationID().equals("" + number), "another correlation-id came");
            }
            replies.close();
            if (isTopic) ((TemporaryTopic) inbox).delete(); else ((TemporaryQueue) inbox).delete();
            Session late = server.createSession(false, Session.AUTO_ACKNOWLEDGE);
            try {
                for (int tries = 0; tries < 100; tries++) {
                    late.createProducer(null).send(inbox, late.createTextMessage("too late"));
                    Thread.sleep(50);
                }
                throw new IllegalStateException("nobody gets the reply, and nobody says so");
            } catch (JMSException expected) {
                System.out.println("refused: " + expected.getMessage());
            }
        }
    }

    static void unsubscribe(String near, String far) throws Exception {
        try (Connection connection = connected(near, "jms-unsubscribe")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.createDurableConsumer(session.createTopic("news"), "reader").close();
        }
        try (Connection connection = connected(far, "jms-unsubscribe")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.unsubscribe("reader");
            try {
                session.unsubscribe("reader");
                throw new IllegalStateException("unsubscribed twice");
            } catch (InvalidDestinationException expected) {
                System.out.println("refused: " + expected.getMessage());
            }
        }
    }

    // Two consumers at two routers share a subscription: together they get each message once.
    static void shared(String near, String far, boolean isDurable) throws Exception {
        Set<String> got = ConcurrentHashMap.newKeySet();
        int[] counts = new int[2];
        try (Connection one = connected(near, null); Connection other = connected(far, null)) {
            Connection[] connections = {one, other};
            MessageConsumer[] consumers = new MessageConsumer[2];
            for (int number = 0; number < 2; number++) {
                int mine = number;
                Session session = connections[number].createSession(false, Session.AUTO_ACKNOWLEDGE);
                consumers[number] = isDurable
                    ? session.createSharedDurableConsumer(session.createTopic("jobs"), "pool")
                    : session.createSharedConsumer(session.createTopic("jobs"), "pool");
                consumers[number].setMessageListener(message -> {
                    try {
                        check(got.add(message.getBody(String.class)), "a message came twice");
                        counts[mine]++;
                    } catch (JMSException error) {
                        throw new IllegalStateException(error);
                    }
                });
            }
            Session publishing = one.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = publishing.createProducer(publishing.createTopic("jobs"));
            for (int number = 0; number < 20; number++) producer.send(publishing.createTextMessage("job " + number));
            check(got.size() == 20, got.size() + " of 20 messages were processed");
            check(counts[0] > 0 && counts[1] > 0, counts[0] + " and " + counts[1]);
            for (MessageConsumer consumer : consumers) consumer.close();
            if (isDurable) {
                unsubscribeSoon(publishing);
                try {
                    publishing.unsubscribe("pool");
                    throw new IllegalStateException("unsubscribed twice");
                } catch (InvalidDestinationException expected) {
                    System.out.println("refused: " + expected.getMessage());
                }
            }
        }
    }

    // The keys of consumers without a map are deleted when their links are gone: a moment after that.
    static void unsubscribeSoon(Session session) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            try {
                session.unsubscribe("pool");
                return;
            } catch (JMSException locked) {
                if (System.currentTimeMillis() > end) throw locked;
                Thread.sleep(50);
            }
        }
    }

    static void clientId(String near) throws Exception {
        try (Connection first = connected(near, "jms-one-of-a-kind")) {
            try {
                connected(near, "jms-one-of-a-kind");
                throw new IllegalStateException("two connections have one client identifier");
            } catch (InvalidClientIDException expected) {
                System.out.println("refused: " + expected.getMessage());
            }
            check(first.getClientID().equals("jms-one-of-a-kind"), "the first connection has another name");
            first.createSession(false, Session.AUTO_ACKNOWLEDGE).close();
        }
        connected(near, "jms-one-of-a-kind").close();
    }

    // A queue of JMS is the address queue://NAME, which a service serves: nobody does here.
    static void queue(String near) throws Exception {
        try (Connection connection = connected(near, null)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            try {
                session.createConsumer(session.createQueue("mails"));
                throw new IllegalStateException("a queue without a service");
            } catch (InvalidDestinationException expected) {
                check(expected.getMessage().contains("no service for queue://"), expected.getMessage());
            }
            check(session.createConsumer(session.createTopic("topic://orders")) != null, "no consumer of a topic");
        }
    }

    // The test kills a router after `half`: both ends go on at the other one. What is sent again is a new message.
    static void failover(String url) throws Exception {
        Set<String> heard = ConcurrentHashMap.newKeySet();
        try (Connection connection = connected(url, "jms-failover")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.createDurableConsumer(session.createTopic("failover"), "reader").setMessageListener(message -> {
                try {
                    heard.add(message.getBody(String.class));
                } catch (JMSException error) {
                    error.printStackTrace();
                }
            });
            Session sending = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = sending.createProducer(null);
            for (int number = 0; number < 200; number++) {
                if (number == 50) System.out.println("half");
                producer.send(sending.createTopic("failover"), sending.createTextMessage("" + number));
                check(heard.contains("" + number), "accepted, and nobody has got it: " + number);
            }
        }
    }
}
