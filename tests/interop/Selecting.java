import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A JMS program with a message selector and with noLocal: java -cp 'FOLDER/*' Selecting.java URL TOPIC COUNT. */
public class Selecting {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new JmsConnectionFactory(arguments[0] + "?jms.forceAsyncSend=true").createConnection()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic(arguments[1]);
            MessageConsumer chosen = session.createConsumer(topic, "color = 'red' AND number > 1");
            MessageConsumer foreign = session.createConsumer(topic, null, true);
            connection.start();
            MessageProducer producer = session.createProducer(topic);
            TextMessage own = session.createTextMessage("own");
            own.setStringProperty("color", "red");
            own.setIntProperty("number", 2);
            producer.send(own);
            System.out.println("chosen " + chosen.receive(20000).getStringProperty("color"));
            System.out.println("ready");
            for (int left = Integer.parseInt(arguments[2]); left > 0; left--) {
                System.out.println("chosen " + chosen.receive(20000).getLongProperty("number"));
            }
            System.out.println("foreign " + foreign.receive(20000).getLongProperty("number"));
            try {
                session.createConsumer(topic, "color = ");
            } catch (InvalidSelectorException | InvalidDestinationException refused) {
                System.out.println("refused");
            } catch (JMSException refused) {
                System.out.println("refused");
            }
        }
    }
}
