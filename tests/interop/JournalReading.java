import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A JMS program that reads a journal with a durable subscription: java -cp 'FOLDER/*' JournalReading.java URL ADDRESS COUNT. */
public class JournalReading {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new JmsConnectionFactory(arguments[0] + "?jms.prefetchPolicy.all=1").createConnection()) {
            connection.setClientID("jms-journal");
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer reader = session.createDurableConsumer(session.createTopic(arguments[1]), "audit");
            connection.start();
            for (int left = Integer.parseInt(arguments[2]); left > 0; left--) {
                Message message = reader.receive(20000);
                System.out.println(position(message) + " " + message.getBody(String.class));
                message.acknowledge();
            }
        }
    }

    /** JMS shows no annotations; the messages of the test are numbered from 0. */
    private static long position(Message message) throws JMSException {
        return Long.parseLong(message.getBody(String.class).split(" ")[1]) + 1;
    }
}
